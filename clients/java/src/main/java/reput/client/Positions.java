// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import reput.common.v1.StoredMessage;
import reput.indexer.v1.ConsumerOffset;
import reput.indexer.v1.SubscribeResponse;

/**
 * What was delivered and not yet handed out, and the next queue offset of each queue as the caller sees it: behind the
 * last message that it was given. No I/O; one caller at a time.
 */
final class Positions {
    private final TreeMap<Integer, Long> next;
    private final Map<Integer, Long> committed = new HashMap<>();
    private Iterator<StoredMessage> waiting = List.<StoredMessage>of().iterator();
    private int waitingQueueId;
    private long waitingEnd;

    Positions(Map<Integer, Long> start) {
        next = new TreeMap<>(start);
    }

    /** Takes what a queue's stream delivered. Only when nothing waits any more, which {@link #pop} tells. */
    void add(int queueId, SubscribeResponse answer) {
        assert !waiting.hasNext();
        waiting = answer.getMessagesList().iterator();
        waitingQueueId = queueId;
        waitingEnd = answer.getNextQueueOffset();
        if (!waiting.hasNext()) {
            next.put(queueId, waitingEnd);
        }
    }

    /** Returns the next message to hand out, null if none waits. */
    Message pop() {
        if (!waiting.hasNext()) {
            return null;
        }
        Message message = new Message(waiting.next());
        next.put(waitingQueueId, waiting.hasNext() ? message.queueOffset() + 1 : waitingEnd);
        return message;
    }

    /** Goes elsewhere in a queue, of which nothing waits then. */
    void move(int queueId, long queueOffset) {
        if (waitingQueueId == queueId) {
            waiting = List.<StoredMessage>of().iterator();
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

    /** Takes note of a commit. */
    void onCommitted(List<ConsumerOffset> offsets) {
        offsets.forEach(offset -> committed.put(offset.getQueueId(), offset.getQueueOffset()));
    }
}
