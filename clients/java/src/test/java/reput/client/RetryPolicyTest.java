// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.grpc.Status.Code;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class RetryPolicyTest {
    private static final RetryPolicy POLICY = RetryPolicy.DEFAULT;
    private static final long MS = 1_000_000;

    @ParameterizedTest
    @CsvSource({"0,25,50", "1,50,100", "5,800,1600", "7,2500,5000", "11,2500,5000"})
    void delaysDoubleUpToTheLongest(int attempt, long shortestMs, long longestMs) {
        assertEquals(shortestMs * MS, POLICY.delayNs(attempt, Errors.unavailable(), 1));
        assertEquals(longestMs * MS, POLICY.delayNs(attempt, Errors.unavailable(), 0));
    }

    @Test
    void aDelayIsNeverShorterThanTheServerAsksFor() {
        var full = Errors.status(Code.RESOURCE_EXHAUSTED, "STORE_FULL", Map.of());
        assertEquals(7000 * MS, POLICY.delayNs(0, ReputException.of(Errors.withRetryAfter(full, 7)), 0));
    }

    @ParameterizedTest
    @ValueSource(strings = {"STORE_FULL", "QUEUE_OFFSETS_UNKNOWN", "WINDOW_FULL", "RECOVERING", "STOPPING",
        "DEPENDENCY_UNAVAILABLE", "NOT_LEADER", "NOT_ENOUGH_REPLICAS", "STORE_REPLACED", "QUOTA_EXCEEDED"})
    void reasonsThatSayThatNothingWasDoneAreTriedAgain(String reason) {
        assertEquals(50 * MS, POLICY.delayNs(0, Errors.error(Code.RESOURCE_EXHAUSTED, reason), 0));
    }

    @ParameterizedTest
    @ValueSource(strings = {"INVALID_ARGUMENT", "NOT_FOUND", "DEADLINE_EXCEEDED", "UNAUTHENTICATED", "INTERNAL",
        "CANCELLED"})
    void othersAreNot(Code code) {
        assertEquals(RetryPolicy.GIVE_UP, POLICY.delayNs(0, Errors.error(code, "")));
    }

    @Test
    void retriesEnd() {
        assertEquals(RetryPolicy.GIVE_UP, POLICY.delayNs(12, Errors.unavailable()));
        assertEquals(RetryPolicy.GIVE_UP, RetryPolicy.NONE.delayNs(0, Errors.unavailable()));
    }

    @Test
    void numbersHaveRanges() {
        Duration second = Duration.ofSeconds(1);
        assertThrows(IllegalArgumentException.class, () -> new RetryPolicy(-1, second, second));
        assertThrows(IllegalArgumentException.class, () -> new RetryPolicy(1, Duration.ZERO, second));
        assertThrows(IllegalArgumentException.class, () -> new RetryPolicy(1, second, Duration.ofMillis(1)));
    }
}
