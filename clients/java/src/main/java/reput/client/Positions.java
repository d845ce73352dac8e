// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import reput.indexer.v1.ConsumerOffset;

/**
 * Messages that were delivered and not yet returned, and the next queue offset of each queue: the offset after the last
 * message that the caller got. No I/O; a single caller at a time.
 */
final class Positions {
    private final TreeMap<Integer, Long> next;
    private final Map<Integer, Long> committed = new HashMap<>();
    private Iterator<Message> waiting = List.<Message>of().iterator();
    private int waitingQueueId;
    private long waitingEnd;

    Positions(Map<Integer, Long> start) {
        next = new TreeMap<>(start);
    }

    /** Adds an answer of a queue's stream. Only when no message waits any more: then {@link #pop} returns null. */
    void add(int queueId, List<Message> messages, long nextQueueOffset) {
        assert !waiting.hasNext();
        waiting = messages.iterator();
        waitingQueueId = queueId;
        waitingEnd = nextQueueOffset;
        if (!waiting.hasNext()) {
            next.put(queueId, waitingEnd);
        }
    }

    /** Returns the next message, null if no message waits. */
    Message pop() {
        if (!waiting.hasNext()) {
            return null;
        }
        Message message = waiting.next();
        next.put(waitingQueueId, waiting.hasNext() ? message.queueOffset() + 1 : waitingEnd);
        return message;
    }

    /** Sets the position of a queue, and drops its waiting messages. */
    void move(int queueId, long queueOffset) {
        if (waitingQueueId == queueId) {
            waiting = List.<Message>of().iterator();
        }
        next.put(queueId, queueOffset);
    }

    /** Returns the next queue offset of each queue. */
    SortedMap<Integer, Long> all() {
        return new TreeMap<>(next);
    }

    /** Returns the positions that changed since they were last committed. */
    List<ConsumerOffset> uncommitted(String topic) {
        return next.entrySet().stream()
                .filter(entry -> !entry.getValue().equals(committed.get(entry.getKey())))
                .map(entry -> ConsumerOffset.newBuilder()
                        .setTopic(topic).setQueueId(entry.getKey()).setQueueOffset(entry.getValue()).build())
                .toList();
    }

    /** Records committed offsets. */
    void onCommitted(List<ConsumerOffset> offsets) {
        offsets.forEach(offset -> committed.put(offset.getQueueId(), offset.getQueueOffset()));
    }
}
