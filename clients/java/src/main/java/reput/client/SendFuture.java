// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * The outcome of a message. It records whether the program has asked for it: by waiting, or by a dependent stage. A
 * thread that waits ends the linger of the message's batch.
 */
final class SendFuture extends CompletableFuture<SendResult> {
    private static final int NEW = 0;
    private static final int ASKED = 1;
    private static final int COUNTED = 2;

    private final AtomicInteger state = new AtomicInteger(NEW);
    private Unread unread;
    private volatile Producer producer;
    private long batchNumber;

    /** Failed messages whose futures the program has not asked. */
    static final class Unread {
        private final AtomicInteger count = new AtomicInteger();
        private volatile ReputException first;

        int count() {
            return count.get();
        }

        ReputException first() {
            return first;
        }
    }

    /** Counts a message that is about to fail, unless the program has asked. */
    void failUnread(Unread counts, ReputException error) {
        unread = counts;
        if (getNumberOfDependents() == 0 && state.compareAndSet(NEW, COUNTED)) {
            counts.first = counts.first == null ? error : counts.first;
            counts.count.incrementAndGet();
        }
    }

    /** Records the batch of the message, before the caller has the future. */
    void wasAdded(Producer producer, long batchNumber) {
        this.batchNumber = batchNumber;
        this.producer = producer;
    }

    /** Ends the linger of the batch, unless the message has its outcome. */
    private void hurry() {
        Producer hurried = producer;
        if (hurried != null && !isDone()) {
            hurried.hurry(batchNumber);
        }
    }

    private void ask() {
        if (state.getAndSet(ASKED) == COUNTED) {
            unread.count.decrementAndGet();
        }
    }

    @Override
    public SendResult get() throws InterruptedException, ExecutionException {
        ask();
        hurry();
        return super.get();
    }

    @Override
    public SendResult get(long timeout, TimeUnit unit)
            throws InterruptedException, ExecutionException, TimeoutException {
        ask();
        if (timeout > 0) {
            hurry();
        }
        return super.get(timeout, unit);
    }

    @Override
    public SendResult join() {
        ask();
        hurry();
        return super.join();
    }

    @Override
    public SendResult getNow(SendResult absent) {
        ask();
        return super.getNow(absent);
    }

    @Override
    public boolean isCompletedExceptionally() {
        ask();
        return super.isCompletedExceptionally();
    }

    @Override
    public <U> CompletableFuture<U> thenApply(Function<? super SendResult, ? extends U> function) {
        ask();
        return super.thenApply(function);
    }

    @Override
    public CompletableFuture<Void> thenAccept(Consumer<? super SendResult> action) {
        ask();
        return super.thenAccept(action);
    }

    @Override
    public CompletableFuture<SendResult> whenComplete(BiConsumer<? super SendResult, ? super Throwable> action) {
        ask();
        return super.whenComplete(action);
    }

    @Override
    public <U> CompletableFuture<U> handle(BiFunction<? super SendResult, Throwable, ? extends U> function) {
        ask();
        return super.handle(function);
    }

    @Override
    public CompletableFuture<SendResult> exceptionally(Function<Throwable, ? extends SendResult> function) {
        ask();
        return super.exceptionally(function);
    }
}
