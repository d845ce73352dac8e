// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.Status;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Exponential back-off with jitter, never shorter than the delay that the server asks for.
 *
 * <p>The delay before retry n, from 0, is between a half and all of {@code delayMin * 2^n}, at most {@code delayMax}.
 *
 * @param retries attempts after the first attempt, from 0; 0 never repeats
 * @param delayMin shortest delay, above zero
 * @param delayMax longest delay, at least {@code delayMin}
 */
public record RetryPolicy(int retries, Duration delayMin, Duration delayMax) {
    /** 12 retries, from 50 ms to 5 s: about half a minute. */
    public static final RetryPolicy DEFAULT = new RetryPolicy(12, Duration.ofMillis(50), Duration.ofSeconds(5));
    /** Never repeats. */
    public static final RetryPolicy NONE = DEFAULT.withRetries(0);

    /** The value of {@link #delayNs} that means to give up. */
    static final long GIVE_UP = -1;
    /** Most answers in a row whose leader is tried at once: logs that change their leader may name each other. */
    static final int FOLLOWS_MAX = 3;
    /** Reasons of a temporary refusal: the server did nothing, and a later attempt may work. See docs/errors.md. */
    private static final Set<String> PASSING_REASONS = Set.of("STORE_FULL", "QUEUE_OFFSETS_UNKNOWN", "WINDOW_FULL",
            "RECOVERING", "STOPPING", "DEPENDENCY_UNAVAILABLE", Route.NOT_LEADER, "NOT_ENOUGH_REPLICAS",
            "STORE_REPLACED", "QUOTA_EXCEEDED");

    /** Throws IllegalArgumentException for numbers outside of their ranges. */
    public RetryPolicy {
        if (retries < 0 || delayMin.isNegative() || delayMin.isZero() || delayMax.compareTo(delayMin) < 0) {
            throw new IllegalArgumentException("retries are not below 0, and delays are 0 < delayMin <= delayMax");
        }
    }

    /** Returns a copy with another number of retries. */
    public RetryPolicy withRetries(int retries) {
        return new RetryPolicy(retries, delayMin, delayMax);
    }

    /**
     * Returns whether the next attempt is sent at once to the leader that an answer names. The server did nothing, so
     * this is no failed attempt. {@code followCount} is the number of such answers in a row.
     */
    static boolean isFollowed(ReputException error, int followCount) {
        return error.reason().equals(Route.NOT_LEADER) && !error.metadata().getOrDefault("leader", "").isEmpty()
                && followCount < FOLLOWS_MAX;
    }

    /** Returns whether another attempt may work. */
    static boolean isPassing(ReputException error) {
        return error.code() == Status.Code.UNAVAILABLE || PASSING_REASONS.contains(error.reason());
    }

    /** Returns nanoseconds to wait after failed attempt number {@code attempt}, from 0, or {@link #GIVE_UP}. */
    long delayNs(int attempt, ReputException error) {
        return delayNs(attempt, error, ThreadLocalRandom.current().nextDouble());
    }

    /** Returns the delay for a given chance from 0 to 1: 0 gives the longest delay, 1 the shortest. */
    long delayNs(int attempt, ReputException error, double chance) {
        if (attempt >= retries || !isPassing(error)) {
            return GIVE_UP;
        }
        double ceiling = Math.min(delayMax.toNanos(), delayMin.toNanos() * Math.pow(2, attempt));
        long askedNs = error.retryAfter().map(Duration::toNanos).orElse(0L);
        return Math.max((long) (ceiling * (1 - chance / 2)), askedNs);
    }
}
