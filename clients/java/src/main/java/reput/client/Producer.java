// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import reput.commitlog.v1.AppendServiceGrpc;
import reput.commitlog.v1.AppendStreamRequest;
import reput.commitlog.v1.AppendStreamResponse;

/**
 * Sends messages over a single AppendStream, in batches, without waiting for each answer. Made by {@link
 * Client#producer}; close it. Any thread may use it.
 *
 * <p>At least once: when the connection breaks, messages without an outcome are sent again and may then be stored
 * twice, with the same unique id. With {@link RetryPolicy#NONE} they fail instead, with {@link
 * ReputException#isOutcomeUnknown}. Messages are stored in the order of the calls, also when some are refused or
 * sent again; a second copy of a message comes behind the first. A refused message does not fail the other messages of
 * its batch.
 *
 * <p>Callbacks of the futures run on a thread that the whole producer waits for: they should be quick, and may not wait
 * for the producer themselves.
 */
public final class Producer implements AutoCloseable {
    // Threads: any number of senders; the producer's thread opens streams and writes batches; gRPC's threads deliver
    // outcomes in sequence. `lock` guards the queue and all fields that are not final. Futures are settled without the
    // lock.
    private static final System.Logger LOGGER = System.getLogger(Producer.class.getName());
    /** How long a server may take to end a stream without further answers. */
    private static final Duration END_TIMEOUT = Duration.ofSeconds(2);
    /** Largest message: it leaves a kibibyte of its request for the other fields. */
    private static final int MESSAGE_SIZE_BYTES_MAX = Connections.MESSAGE_SIZE_BYTES_MAX - 1024;

    private final Client client;
    private final Durability durability;
    private final Encoder encoder;
    private final long startNs = System.nanoTime();
    private final Object lock = new Object();
    private final SendQueue queue;
    private final Set<Thread> settlingThreads = new HashSet<>();
    private SendFuture.Unread unread = new SendFuture.Unread();
    private boolean isClosing;
    private AppendCall current;
    private final Thread thread;

    Producer(Client client, ProducerOptions options) {
        this.client = client;
        this.durability = options.durability();
        this.encoder = new Encoder(options.uniqueIds() ? UniqueIds.ofThisProcess() : null);
        this.queue = new SendQueue(options);
        this.thread = new Thread(this::run, "reput-producer");
        thread.setDaemon(true);
        thread.start();
    }

    /** Sends a message with only a body, as {@link #send(NewMessage)} does. */
    public CompletableFuture<SendResult> send(String topic, byte[] body) {
        return send(NewMessage.of(topic, body));
    }

    /**
     * Sends a message, and returns a future of its outcome that fails with a {@link ReputException}. Waits only while
     * the window is full.
     *
     * <p>A thread that waits in {@code get} or {@code join} of the future ends the linger of its batch: threads that
     * wait for each message share the stream without an option. After a time-out of {@code get} the message is sent all
     * the same, and may be stored.
     *
     * <p>Throws IllegalArgumentException that names the mistake in the message, ReputException with the code CANCELLED
     * after {@link #close} or if the thread is interrupted while it waits, and IllegalStateException in a callback of a
     * future for which there is no room. The message is not sent then.
     */
    public CompletableFuture<SendResult> send(NewMessage message) {
        Encoder.Encoded encoded = encoder.encode(message, System.currentTimeMillis());
        int sizeBytes = SendQueue.sizeBytes(encoded.message());
        if (sizeBytes > MESSAGE_SIZE_BYTES_MAX) {
            int bodySizeBytes = message.body().size();
            throw new IllegalArgumentException("the body has " + bodySizeBytes + " bytes, and this client sends "
                    + Math.max(0, MESSAGE_SIZE_BYTES_MAX - sizeBytes + bodySizeBytes) + " at most; nothing was sent");
        }
        SendFuture future = new SendFuture();
        synchronized (lock) {
            waitForRoom(sizeBytes);
            if (queue.add(encoded.message(), encoded.uniqueId(), future, nowNs())) {
                lock.notifyAll();
            }
            future.wasAdded(this, queue.batchNumber());
        }
        return future;
    }

    /** Ends the linger of a batch: a caller waits for its outcome. */
    void hurry(long batchNumber) {
        synchronized (lock) {
            if (queue.hurry(batchNumber)) {
                lock.notifyAll();
            }
        }
    }

    /**
     * Sends the collected messages and waits until the future of every message is done, and its callbacks have run. A
     * warning in the log gives the number of failed messages whose futures the program has not asked; {@link #close}
     * logs it, too.
     *
     * <p>Throws ReputException if the thread is interrupted, and IllegalStateException in such a callback.
     */
    public void flush() {
        synchronized (lock) {
            refuseCallbacks();
            queue.closeBatch();
            lock.notifyAll();
            while (!isSettled()) {
                waitForChange(SendQueue.FOREVER);
            }
        }
        tellUnread();
    }

    /** Flushes, at most for the client's time-out; messages without an outcome by then fail. Then ends the stream. */
    @Override
    public void close() {
        close(client.options().timeout());
    }

    /**
     * Flushes, at most for this time; messages without an outcome by then fail. Then ends the stream. May be repeated.
     * An interrupted thread stops waiting.
     *
     * <p>Throws IllegalStateException in a callback of a future, which would wait for itself.
     */
    public void close(Duration timeout) {
        try {
            synchronized (lock) {
                refuseCallbacks();
                isClosing = true;
                queue.closeBatch();
                lock.notifyAll();
                for (long endNs = nowNs() + timeout.toNanos(); !isSettled() && nowNs() < endNs;) {
                    waitForChange(endNs - nowNs());
                }
            }
        } catch (ReputException interrupted) {
            LOGGER.log(System.Logger.Level.DEBUG, "a producer is closed by an interrupted thread", interrupted);
        }
        settle(() -> giveUp(new ReputException(Status.Code.CANCELLED, "the producer was closed")));
        tellUnread();
        try {
            thread.join(END_TIMEOUT.toMillis() * 2);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        client.forget(this);
    }

    private long nowNs() {
        return System.nanoTime() - startNs;
    }

    /** Under the lock. */
    private boolean isSettled() {
        return queue.isIdle() && settlingThreads.isEmpty();
    }

    /** Under the lock. Throws IllegalStateException in a callback, which would wait for itself. */
    private void refuseCallbacks() {
        if (settlingThreads.contains(Thread.currentThread())) {
            throw new IllegalStateException("a callback of a future may not wait for its producer; use another thread");
        }
    }

    /** Waits for room, under the lock. Throws ReputException if the producer is closed. */
    private void waitForRoom(int sizeBytes) {
        if (!isClosing && !queue.hasRoom(sizeBytes)) {
            refuseCallbacks();
            queue.closeBatch(); // No sender can add to the batch now.
            lock.notifyAll();
            while (!isClosing && !queue.hasRoom(sizeBytes)) {
                waitForChange(SendQueue.FOREVER);
            }
        }
        if (isClosing) {
            throw new ReputException(Status.Code.CANCELLED, "the producer is closed");
        }
    }

    /** Releases the lock until the next change or the end of the time. Throws ReputException if interrupted. */
    private void waitForChange(long timeoutNs) {
        try {
            TimeUnit.NANOSECONDS.timedWait(lock, timeoutNs);
        } catch (InterruptedException interrupted) {
            throw ReputException.interrupted();
        }
    }

    /** Fails all messages that are not settled, and lets the producer's thread end. Under the lock. */
    private void giveUp(ReputException error) {
        isClosing = true;
        if (!queue.isIdle()) {
            queue.failAll(error);
            if (current != null) {
                current.end(error);
            }
        }
    }

    /** Logs the number of failed messages whose futures were not asked. Each message is logged once. */
    private void tellUnread() {
        SendFuture.Unread told;
        synchronized (lock) {
            told = unread;
            unread = new SendFuture.Unread();
        }
        if (told.count() > 0) {
            LOGGER.log(System.Logger.Level.WARNING, told.count() + " messages of a producer failed, and their futures "
                    + "have not been asked yet; the first failure: " + told.first().getMessage());
        }
    }

    /** Changes the queue under the lock. Then, without the lock, settles the futures that got an outcome. */
    private void settle(Runnable change) {
        List<SendQueue.Settlement> settled;
        synchronized (lock) {
            change.run();
            settled = queue.popSettled();
            settled.forEach(this::countUnread);
            settlingThreads.add(Thread.currentThread());
            lock.notifyAll();
        }
        settled.forEach(SendQueue.Settlement::deliver); // A callback that throws fails its own future.
        synchronized (lock) {
            settlingThreads.remove(Thread.currentThread());
            lock.notifyAll();
        }
    }

    /** Counts messages that are about to fail. Under the lock. */
    private void countUnread(SendQueue.Settlement settlement) {
        if (settlement.error() != null) {
            for (SendQueue.Entry entry : settlement.entries()) {
                ((SendFuture) entry.future()).failUnread(unread, settlement.error());
            }
        }
    }

    /** Keeps a stream open while there are messages to send. This is the producer's thread. */
    private void run() {
        try {
            while (waitForWork()) {
                runStream();
            }
        } catch (RuntimeException failure) {
            LOGGER.log(System.Logger.Level.ERROR, "a producer ended by a failure", failure);
            settle(() -> giveUp(ReputException.of(failure)));
            if (current != null && current.requests != null) {
                current.requests.cancel("the producer ended", failure);
            }
        }
    }

    /** Waits for messages to send. Returns false when the producer is closed and all messages are settled. */
    private boolean waitForWork() {
        synchronized (lock) {
            for (long waitNs; (waitNs = queue.waitNs(nowNs())) > 0;) {
                if (isClosing && queue.isIdle()) {
                    return false;
                }
                waitForChange(waitNs);
            }
            return true;
        }
    }

    /** Runs a stream from its opening to its end. */
    private void runStream() {
        String target = client.commitlogRoute().target();
        AppendCall call = new AppendCall();
        synchronized (lock) {
            current = call;
        }
        AppendServiceGrpc.newStub(client.commitlog()).appendStream(call);
        for (SendQueue.Batch batch; (batch = nextBatch(call)) != null;) {
            call.isWritten = true;
            call.requests.onNext(batch.toRequest(durability));
        }
        ReputException error = endStream(call);
        client.commitlogRoute().onFailure(target, error);
        settle(() -> queue.onBroken(error, call.isWritten, nowNs()));
    }

    /**
     * Waits for the next batch to write and for the stream to take it. Returns null when the stream is over, or when
     * all messages are settled after {@code close}.
     *
     * <p>While the stream is not ready, messages are still collected, but a batch is in flight all the same: so it is a
     * failed attempt if the stream is never opened.
     */
    private SendQueue.Batch nextBatch(AppendCall call) {
        synchronized (lock) {
            SendQueue.Batch batch = null;
            while (!call.isOver() && !(isClosing && queue.isIdle())) {
                boolean isReady = call.requests.isReady();
                boolean mayPop = batch == null && (isReady || !queue.hasInFlight());
                batch = mayPop ? queue.pop(nowNs()) : batch;
                if (batch != null && isReady) {
                    return batch;
                }
                waitForChange(batch == null && mayPop ? queue.waitNs(nowNs()) : SendQueue.FOREVER);
            }
            return null;
        }
    }

    /** Ends a stream from this side, unless the server has ended it. Returns the error that ended it. */
    private ReputException endStream(AppendCall call) {
        synchronized (lock) {
            if (!call.isOver()) {
                call.requests.onCompleted();
            }
            for (long endNs = nowNs() + END_TIMEOUT.toNanos(); !call.isOver() && nowNs() < endNs;) {
                waitForChange(endNs - nowNs());
            }
            call.end(new ReputException(Status.Code.CANCELLED, "the producer was closed"));
            call.requests.cancel("the stream is over", null);
            return call.error;
        }
    }

    /** A stream, with the events of gRPC's threads. Only the producer's thread writes to it and cancels it. */
    private final class AppendCall implements ClientResponseObserver<AppendStreamRequest, AppendStreamResponse> {
        private ClientCallStreamObserver<AppendStreamRequest> requests;
        private ReputException error;
        private boolean isWritten;

        @Override
        public void beforeStart(ClientCallStreamObserver<AppendStreamRequest> requests) {
            this.requests = requests;
            requests.setOnReadyHandler(this::onReady);
        }

        @Override
        public void onNext(AppendStreamResponse response) {
            settle(() -> {
                if (isOver()) {
                    return; // The batches in flight are on another stream already.
                }
                try {
                    queue.onOutcomes(response.getOutcomesList(), nowNs());
                    end(queue.moved());
                } catch (RuntimeException failure) {
                    end(ReputException.nonsense(failure));
                }
            });
        }

        @Override
        public void onError(Throwable failure) {
            end(ReputException.of(failure));
        }

        @Override
        public void onCompleted() {
            end(new ReputException(Status.Code.UNAVAILABLE, "the server ended the stream"));
        }

        private void onReady() {
            synchronized (lock) {
                lock.notifyAll();
            }
        }

        /** Under the lock. */
        boolean isOver() {
            return error != null;
        }

        /** Records the error that ends the stream, null for none. Only the first error is kept. */
        void end(ReputException why) {
            synchronized (lock) {
                error = error == null ? why : error;
                lock.notifyAll();
            }
        }
    }
}
