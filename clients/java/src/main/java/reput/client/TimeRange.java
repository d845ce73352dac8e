// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.Timestamp;
import java.time.Instant;
import java.util.function.Consumer;

/**
 * A range of store times.
 *
 * @param start inclusive; null means from the oldest message on
 * @param end exclusive; null means up to the newest message
 */
public record TimeRange(Instant start, Instant end) {
    /** All times. */
    public static final TimeRange ALL = new TimeRange(null, null);

    /** From a time on, inclusive. */
    public static TimeRange since(Instant start) {
        return new TimeRange(start, null);
    }

    /** Up to a time, exclusive. */
    public static TimeRange until(Instant end) {
        return new TimeRange(null, end);
    }

    /** Sets the start and the end of a request, if the range has them. */
    void apply(Consumer<Timestamp> setStart, Consumer<Timestamp> setEnd) {
        if (start != null) {
            setStart.accept(timestamp(start));
        }
        if (end != null) {
            setEnd.accept(timestamp(end));
        }
    }

    static Timestamp timestamp(Instant time) {
        return Timestamp.newBuilder().setSeconds(time.getEpochSecond()).setNanos(time.getNano()).build();
    }
}
