// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.List;

/**
 * How a consumer reads.
 *
 * @param group whose committed offsets it begins at and commits; null for none
 * @param queueIds queues that it follows; null for all of the topic
 * @param start where it begins in queues in which the group has committed nothing, or without a group
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

    /** Returns a copy for these queues alone. */
    public ConsumerOptions withQueueIds(List<Integer> queueIds) {
        return new ConsumerOptions(group, queueIds, start, tags);
    }

    /** Returns a copy that begins elsewhere. */
    public ConsumerOptions withStart(Start start) {
        return new ConsumerOptions(group, queueIds, start, tags);
    }

    /** Returns a copy with other tags. */
    public ConsumerOptions withTags(String tags) {
        return new ConsumerOptions(group, queueIds, start, tags);
    }
}
