// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.List;
import reput.indexer.v1.PullResponse;
import reput.indexer.v1.PullStatus;

/**
 * What a pull found.
 *
 * @param status what the pull found, as the API names it: PULL_STATUS_FOUND and so on
 * @param messages in queue order
 * @param nextQueueOffset where to go on
 * @param minQueueOffset first entry of the queue
 * @param maxQueueOffset end of the queue, exclusive
 */
public record PullResult(PullStatus status, List<Message> messages, long nextQueueOffset, long minQueueOffset,
        long maxQueueOffset) {
    static PullResult of(PullResponse answer) {
        return new PullResult(answer.getStatus(), Message.all(answer.getMessagesList()),
                answer.getNextQueueOffset(), answer.getMinQueueOffset(), answer.getMaxQueueOffset());
    }
}
