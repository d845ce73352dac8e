// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.time.Instant;
import java.util.Objects;

/** The start of a consumer in a queue: at its first entry, at its end, or at the first entry at or after a time. */
public final class Start {
    /** The first stored entry. */
    public static final Start EARLIEST = new Start(null);
    /** The end: only later messages. */
    public static final Start LATEST = new Start(null);

    private final Instant time;

    private Start(Instant time) {
        this.time = time;
    }

    /** The first entry that was stored at or after a time, in whole milliseconds. */
    public static Start at(Instant time) {
        return new Start(Objects.requireNonNull(time));
    }

    /** Returns the time, null for the constants. */
    Instant time() {
        return time;
    }
}
