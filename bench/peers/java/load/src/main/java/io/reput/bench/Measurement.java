// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/** Runs work in threads: first until the JVM has compiled it, then with the clock. */
public final class Measurement {
    /** Long enough for the compiler to have the hot methods; the rate is flat after it. */
    private static final double WARM_UP_S = 3;

    private Measurement() {
    }

    /** Work of one thread until a moment of `System.nanoTime()`. */
    @FunctionalInterface
    public interface Worker {
        /** Returns the number of messages, all of them acknowledged. Any failed one is an exception. */
        long work(int thread, long endNs) throws Exception;
    }

    /** One call, timed alone. */
    @FunctionalInterface
    public interface Call {
        /** Any failure is an exception. */
        void call(int number) throws Exception;
    }

    /** Messages per time. The clock stops when the last worker has its last acknowledgement. */
    public static Result throughput(int threads, double seconds, int bodySizeBytes, Worker worker) throws Exception {
        workAll(threads, WARM_UP_S, worker);
        long startNs = System.nanoTime();
        long messages = workAll(threads, seconds, worker);
        double elapsedS = (System.nanoTime() - startNs) / 1e9;
        return new Result(messages, messages * bodySizeBytes, elapsedS, new long[0]);
    }

    /** Time per call. */
    public static Result latency(int callers, int calls, int bodySizeBytes, Call call) throws Exception {
        workAll(callers, WARM_UP_S, (thread, endNs) -> {
            for (int number = thread; System.nanoTime() < endNs; number += callers) {
                call.call(number);
            }
            return 0;
        });
        long[] latenciesNs = new long[calls];
        AtomicInteger next = new AtomicInteger();
        long startNs = System.nanoTime();
        workAll(callers, 0, (thread, endNs) -> {
            for (int number = next.getAndIncrement(); number < calls; number = next.getAndIncrement()) {
                long callStartNs = System.nanoTime();
                call.call(number);
                latenciesNs[number] = System.nanoTime() - callStartNs;
            }
            return 0;
        });
        double elapsedS = (System.nanoTime() - startNs) / 1e9;
        return new Result(calls, (long) calls * bodySizeBytes, elapsedS, latenciesNs);
    }

    private static long workAll(int threads, double seconds, Worker worker) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(threads);
        long endNs = System.nanoTime() + (long) (seconds * 1e9);
        try {
            List<Future<Long>> parts = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                int thread = i;
                parts.add(executor.submit(() -> worker.work(thread, endNs)));
            }
            long total = 0;
            for (Future<Long> part : parts) {
                total += part.get();
            }
            return total;
        } catch (ExecutionException failure) {
            throw failure.getCause() instanceof Exception cause ? cause : failure;
        } finally {
            executor.shutdownNow();
        }
    }
}
