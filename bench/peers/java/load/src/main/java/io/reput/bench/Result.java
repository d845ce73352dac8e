// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.util.Arrays;
import java.util.Locale;

/** What a load measured. `latenciesNs` is empty where single calls were not timed. */
public record Result(long messages, long bytes, double seconds, long[] latenciesNs) {
    /** One line of JSON. Percentiles are exact: of all calls, by nearest rank. */
    public String toJson() {
        String counts = String.format(
            Locale.ROOT, "\"messages\": %d, \"bytes\": %d, \"seconds\": %.6f", messages, bytes, seconds);
        if (latenciesNs.length == 0) {
            return "{" + counts + "}";
        }
        long[] sorted = latenciesNs.clone();
        Arrays.sort(sorted);
        String latencies = String.format(
            Locale.ROOT, "{\"p50\": %.6f, \"p99\": %.6f, \"p999\": %.6f}",
            percentileMs(sorted, 0.5), percentileMs(sorted, 0.99), percentileMs(sorted, 0.999));
        return "{" + counts + ", \"latencies_ms\": " + latencies + "}";
    }

    private static double percentileMs(long[] sorted, double share) {
        return sorted[(int) Math.ceil(share * sorted.length) - 1] / 1e6;
    }
}
