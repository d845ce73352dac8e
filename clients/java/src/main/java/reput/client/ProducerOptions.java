// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.time.Duration;

/**
 * The options of a producer: batches, waiting and retries.
 *
 * @param linger how long the first message of a batch waits for further messages if no thread waits, from 0
 * @param batchSizeBytes a batch is sent when it has so many bytes, at any age; from 1 to 8 MiB and the window
 * @param windowBytes bytes of messages whose outcome is not known; {@code send} waits while there are more
 * @param durability durability that the store waits for before it answers
 * @param retry policy for failed batches; null means the client's. With 0 retries no message is stored twice
 * @param uniqueIds whether each message without a unique id gets a unique id
 */
public record ProducerOptions(Duration linger, int batchSizeBytes, int windowBytes, Durability durability,
        RetryPolicy retry, boolean uniqueIds) {
    /** 5 ms, 512 KiB, 8 MiB, the store's own durability, the client's retries, unique ids. */
    public static final ProducerOptions DEFAULT = new ProducerOptions(Duration.ofMillis(5), 512 << 10, 8 << 20,
            Durability.DEFAULT, null, true);
    private static final int BATCH_SIZE_BYTES_MAX = 8 << 20;

    /** Throws IllegalArgumentException for a value outside of its range; the producer checks the window. */
    public ProducerOptions {
        if (linger.isNegative()) {
            throw new IllegalArgumentException("linger is negative");
        }
        if (batchSizeBytes < 1 || batchSizeBytes > BATCH_SIZE_BYTES_MAX) {
            throw new IllegalArgumentException("batchSizeBytes is " + batchSizeBytes + ", not from 1 to 8 MiB");
        }
    }

    /** Returns a copy with another linger. */
    public ProducerOptions withLinger(Duration linger) {
        return new ProducerOptions(linger, batchSizeBytes, windowBytes, durability, retry, uniqueIds);
    }

    /** Returns a copy with another size of batches. */
    public ProducerOptions withBatchSizeBytes(int batchSizeBytes) {
        return new ProducerOptions(linger, batchSizeBytes, windowBytes, durability, retry, uniqueIds);
    }

    /** Returns a copy with another window. */
    public ProducerOptions withWindowBytes(int windowBytes) {
        return new ProducerOptions(linger, batchSizeBytes, windowBytes, durability, retry, uniqueIds);
    }

    /** Returns a copy with another durability. */
    public ProducerOptions withDurability(Durability durability) {
        return new ProducerOptions(linger, batchSizeBytes, windowBytes, durability, retry, uniqueIds);
    }

    /** Returns a copy with other retries. */
    public ProducerOptions withRetry(RetryPolicy retry) {
        return new ProducerOptions(linger, batchSizeBytes, windowBytes, durability, retry, uniqueIds);
    }

    /** Returns a copy that gives unique ids or does not. */
    public ProducerOptions withUniqueIds(boolean uniqueIds) {
        return new ProducerOptions(linger, batchSizeBytes, windowBytes, durability, retry, uniqueIds);
    }

    /**
     * Returns this, with the client's retries if none are set. Throws IllegalArgumentException for a too small window.
     */
    ProducerOptions checked(RetryPolicy clientRetry) {
        if (batchSizeBytes > windowBytes) {
            throw new IllegalArgumentException("a batch of " + batchSizeBytes + " bytes is larger than windowBytes, "
                    + windowBytes);
        }
        return retry == null ? withRetry(clientRetry) : this;
    }
}
