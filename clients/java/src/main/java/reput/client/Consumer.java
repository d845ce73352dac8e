// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.SortedMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import reput.indexer.v1.CommitConsumerOffsetRequest;
import reput.indexer.v1.ConsumerOffset;
import reput.indexer.v1.ConsumerOffsetServiceGrpc;
import reput.indexer.v1.QueueServiceGrpc;
import reput.indexer.v1.SubscribeRequest;
import reput.indexer.v1.SubscribeResponse;

/**
 * The messages of a topic as they are stored, each queue in order. Made by {@link Client#consumer}; close it.
 *
 * <p>Streams that break are opened again at the same position, during a poll. At least once: after a restart a consumer
 * of a group begins at the last commit. Use it from a single thread. Only {@link #close} may be called from another
 * thread, and ends the iteration.
 */
public final class Consumer implements Iterable<Message>, AutoCloseable {
    // Threads: the caller's thread, which also opens streams, and gRPC's threads, which deliver answers. The lock
    // guards all state.
    /**
     * Most answers of a queue (up to 1 MiB each) that wait here; further answers wait in the transport and at the
     * server.
     */
    private static final int ANSWER_COUNT_MAX = 4;
    /** Most offsets of a commit; as in consumer_offset_service.proto. */
    private static final int COMMIT_OFFSET_COUNT_MAX = 1000;

    private final Client client;
    private final String topic;
    private final ConsumerOptions options;
    private final Object lock = new Object();
    private final ArrayDeque<Delivery> deliveries = new ArrayDeque<>();
    private final Map<Integer, Reader> readers = new HashMap<>();
    private final Positions positions;
    private boolean isClosed;

    /** An answer and its reader. */
    private record Delivery(Reader reader, List<Message> messages, long nextQueueOffset) {}

    Consumer(Client client, String topic, ConsumerOptions options) {
        this.client = client;
        this.topic = topic;
        this.options = options;
        Map<Integer, Long> start = new StartFinder(client, topic, options).find();
        this.positions = new Positions(start);
        start.forEach((queueId, queueOffset) -> readers.put(queueId, new Reader(queueId, queueOffset)));
    }

    /**
     * Returns the next message, empty if no message comes within the time or if the consumer is closed.
     *
     * <p>Throws ReputException if a stream broke and its retries are used up; the next call tries again. Throws it also
     * if the thread is interrupted.
     */
    public Optional<Message> poll(Duration timeout) {
        return Optional.ofNullable(next(System.nanoTime() + timeout.toNanos(), false));
    }

    /** Iterates until the consumer is closed, and waits for each message. Throws as {@link #poll}. */
    @Override
    public Iterator<Message> iterator() {
        return Stream.generate(() -> next(0, true)).takeWhile(Objects::nonNull).iterator();
    }

    /** Returns the next queue offset of each queue by queue id: the offset after the last message that was returned. */
    public SortedMap<Integer, Long> positions() {
        synchronized (lock) {
            return positions.all();
        }
    }

    /**
     * Stores the group's offsets: all messages that were returned are done. The store syncs them within 5 s.
     *
     * <p>Throws IllegalStateException without a group.
     */
    public void commit() {
        if (options.group() == null) {
            throw new IllegalStateException("a consumer without a group has nothing to commit to");
        }
        List<ConsumerOffset> offsets;
        synchronized (lock) {
            offsets = positions.uncommitted(topic);
        }
        for (int first = 0; first < offsets.size(); first += COMMIT_OFFSET_COUNT_MAX) {
            commit(offsets.subList(first, Math.min(first + COMMIT_OFFSET_COUNT_MAX, offsets.size())));
        }
    }

    /** Continues at another offset of a queue. Throws IllegalArgumentException for a queue that is not consumed. */
    public void seek(int queueId, long queueOffset) {
        synchronized (lock) {
            Reader old = readers.get(queueId);
            if (old == null) {
                throw new IllegalArgumentException("queue " + queueId + " is not consumed");
            }
            old.stop();
            deliveries.removeIf(delivery -> delivery.reader == old);
            positions.move(queueId, queueOffset);
            readers.put(queueId, new Reader(queueId, queueOffset));
            lock.notifyAll();
        }
    }

    /** Ends all streams. Commits nothing. May be repeated. */
    @Override
    public void close() {
        synchronized (lock) {
            isClosed = true;
            readers.values().forEach(Reader::stop);
            deliveries.clear();
            lock.notifyAll();
        }
        client.forget(this);
    }

    private void commit(List<ConsumerOffset> offsets) {
        client.call(ConsumerOffsetServiceGrpc.getCommitConsumerOffsetMethod(),
                CommitConsumerOffsetRequest.newBuilder().setGroup(options.group()).addAllOffsets(offsets).build());
        synchronized (lock) {
            positions.onCommitted(offsets);
        }
    }

    /** Returns the next message, null when the consumer is closed, or at the end of the time unless it is endless. */
    private Message next(long endNs, boolean isEndless) {
        synchronized (lock) {
            while (!isClosed) {
                Message message = positions.pop();
                if (message != null) {
                    return message;
                }
                if (!enterOldest()) {
                    long waitNs = openStreams();
                    long leftNs = isEndless ? Long.MAX_VALUE : endNs - System.nanoTime();
                    if (leftNs <= 0) {
                        return null;
                    }
                    waitForChange(Math.min(leftNs, waitNs));
                }
            }
            return null;
        }
    }

    private void waitForChange(long timeoutNs) {
        try {
            TimeUnit.NANOSECONDS.timedWait(lock, timeoutNs);
        } catch (InterruptedException interrupted) {
            throw ReputException.interrupted();
        }
    }

    /** Takes the oldest delivery. Returns false if there is none. */
    private boolean enterOldest() {
        Delivery delivery = deliveries.poll();
        if (delivery == null) {
            return false;
        }
        delivery.reader.stream.request(1);
        positions.add(delivery.reader.queueId, delivery.messages, delivery.nextQueueOffset);
        return true;
    }

    /**
     * Opens the streams that are due. Returns nanoseconds until the next stream is due. Throws the error of a reader
     * that gave up.
     */
    private long openStreams() {
        long nowNs = System.nanoTime();
        long waitNs = Long.MAX_VALUE;
        for (Reader reader : readers.values()) {
            if (!reader.isOpen) {
                reader.throwError();
                long dueNs = reader.dueNs - nowNs;
                if (dueNs <= 0) {
                    reader.open();
                } else {
                    waitNs = Math.min(waitNs, dueNs);
                }
            }
        }
        return waitNs;
    }

    /** Follows a queue: opens streams in sequence, each with room for ANSWER_COUNT_MAX answers. */
    private final class Reader implements ClientResponseObserver<SubscribeRequest, SubscribeResponse> {
        private final int queueId;
        private long queueOffset;
        private ClientCallStreamObserver<SubscribeRequest> stream;
        private boolean isOpen;
        private boolean isStopped;
        private int attempt;
        private long dueNs = System.nanoTime();
        private ReputException error;
        /** The error because of which the stream was cancelled here. */
        private ReputException refusal;

        Reader(int queueId, long queueOffset) {
            this.queueId = queueId;
            this.queueOffset = queueOffset;
        }

        /** Opens a stream. No answer of an older stream waits any more. */
        void open() {
            isOpen = true;
            refusal = null;
            SubscribeRequest request = SubscribeRequest.newBuilder()
                    .setTopic(topic).setQueueId(queueId).setQueueOffset(queueOffset).setTagExpression(options.tags())
                    .setWantsRecords(true).build();
            QueueServiceGrpc.newStub(client.indexer()).subscribe(request, this);
        }

        void stop() {
            isStopped = true;
            if (isOpen) {
                stream.cancel("the consumer goes on elsewhere, or is closed", null);
            }
        }

        /** Throws the error with which the reader gave up, if it did; then its attempts begin anew. */
        void throwError() {
            ReputException gaveUp = error;
            if (gaveUp != null) {
                error = null;
                attempt = 0;
                throw gaveUp;
            }
        }

        @Override
        public void beforeStart(ClientCallStreamObserver<SubscribeRequest> stream) {
            this.stream = stream;
            stream.disableAutoRequestWithInitial(ANSWER_COUNT_MAX);
        }

        @Override
        public void onNext(SubscribeResponse answer) {
            List<Message> messages;
            try {
                messages = StoredRecord.messages(
                        answer.getMessagesList(), answer.getRecords(), answer.getRecordCount());
            } catch (ReputException unsound) {
                refuse(unsound);
                return;
            }
            synchronized (lock) {
                if (!isStopped && refusal == null) {
                    attempt = 0;
                    queueOffset = answer.getNextQueueOffset();
                    deliveries.add(new Delivery(this, messages, queueOffset));
                    lock.notifyAll();
                }
            }
        }

        /** Ends the stream with the error of an answer. Later answers of the stream are dropped. */
        private void refuse(ReputException unsound) {
            synchronized (lock) {
                refusal = refusal == null ? unsound : refusal;
                stream.cancel(unsound.getMessage(), unsound);
            }
        }

        @Override
        public void onError(Throwable failure) {
            onEnd(ReputException.of(failure));
        }

        @Override
        public void onCompleted() {
            onEnd(new ReputException(Status.Code.UNAVAILABLE, "the server ended the stream"));
        }

        private void onEnd(ReputException ended) {
            synchronized (lock) {
                isOpen = false;
                ReputException why = refusal == null ? ended : refusal;
                long delayNs = client.options().retry().delayNs(attempt, why);
                error = delayNs == RetryPolicy.GIVE_UP ? why : null;
                dueNs = System.nanoTime() + Math.max(0, delayNs);
                attempt++;
                lock.notifyAll();
            }
        }
    }
}
