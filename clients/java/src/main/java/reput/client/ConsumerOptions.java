// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.List;

/**
 * The options of a consumer.
 *
 * @param group group whose committed offsets it begins at, and for which it commits; null for no group
 * @param queueIds queues that it follows; null for all queues of the topic
 * @param start start in queues without a committed offset of the group, or without a group
 * @param tags {@code *} for all, or tags separated by {@code ||}
 */
public record ConsumerOptions(String group, List<Integer> queueIds, Start start, String tags) {
    /** No group, all queues from their first entry on, all tags. */
    public static final ConsumerOptions DEFAULT = new ConsumerOptions(null, null, Start.EARLIEST, "*");

    /** Copies the queue ids. */
    public ConsumerOptions {
        queueIds = queueIds == null ? null : List.copyOf(queueIds);
    }

    /** Returns a copy with a group. */
    public ConsumerOptions withGroup(String group) {
        return new ConsumerOptions(group, queueIds, start, tags);
    }

    /** Returns a copy for only these queues. */
    public ConsumerOptions withQueueIds(List<Integer> queueIds) {
        return new ConsumerOptions(group, queueIds, start, tags);
    }

    /** Returns a copy with another start. */
    public ConsumerOptions withStart(Start start) {
        return new ConsumerOptions(group, queueIds, start, tags);
    }

    /** Returns a copy with other tags. */
    public ConsumerOptions withTags(String tags) {
        return new ConsumerOptions(group, queueIds, start, tags);
    }
}
