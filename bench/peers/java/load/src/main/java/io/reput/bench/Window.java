// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/** Batches of one producer that are under way: a bound on them, what was acknowledged, and the first failure. */
public final class Window {
    private final int size;
    private final Semaphore free;
    private final AtomicLong messages = new AtomicLong();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    public Window(int size) {
        this.size = size;
        this.free = new Semaphore(size);
    }

    /** Waits for a place for one more batch. Throws what made an earlier one fail. */
    public void enter() throws Exception {
        free.acquire();
        check();
    }

    /** A batch was acknowledged. Called by any thread. */
    public void acknowledged(int messageCount) {
        messages.addAndGet(messageCount);
        free.release();
    }

    /** A batch was refused or lost. Called by any thread. */
    public void failed(Throwable reason) {
        failure.compareAndSet(null, reason);
        free.release();
    }

    /** Waits until nothing is under way and returns the number of messages. Throws what made a batch fail. */
    public long drain() throws Exception {
        free.acquire(size);
        check();
        return messages.get();
    }

    private void check() throws Exception {
        if (failure.get() != null) {
            throw new IllegalStateException("a batch was not acknowledged", failure.get());
        }
    }
}
