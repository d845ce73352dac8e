// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.List;
import reput.indexer.v1.PullResponse;
import reput.indexer.v1.PullStatus;

/**
 * The result of a pull.
 *
 * @param status status of the pull with the names of the API: PULL_STATUS_FOUND and so on
 * @param messages messages in queue order
 * @param nextQueueOffset queue offset to continue at
 * @param minQueueOffset first entry of the queue
 * @param maxQueueOffset end of the queue, exclusive
 */
public record PullResult(PullStatus status, List<Message> messages, long nextQueueOffset, long minQueueOffset,
        long maxQueueOffset) {
    static PullResult of(PullResponse answer) {
        return new PullResult(answer.getStatus(),
                StoredRecord.messages(answer.getMessagesList(), answer.getRecords(), answer.getRecordCount()),
                answer.getNextQueueOffset(), answer.getMinQueueOffset(), answer.getMaxQueueOffset());
    }
}
