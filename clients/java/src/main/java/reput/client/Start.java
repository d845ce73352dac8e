// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.time.Instant;
import java.util.Objects;

/** Where a consumer begins in a queue: at its first entry, at its end, or at the first entry at or after a time. */
public final class Start {
    /** The first entry that is kept. */
    public static final Start EARLIEST = new Start(null);
    /** The end: only what comes later. */
    public static final Start LATEST = new Start(null);

    private final Instant time;

    private Start(Instant time) {
        this.time = time;
    }

    /** The first entry that was stored at or after a time; milliseconds count. */
    public static Start at(Instant time) {
        return new Start(Objects.requireNonNull(time));
    }

    /** Returns the time, null for one of the constants. */
    Instant time() {
        return time;
    }
}
