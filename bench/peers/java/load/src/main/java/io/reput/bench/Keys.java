// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

/** Keys and tags of the messages, by the number of the message. */
public final class Keys {
    private static final int TAG_COUNT = 8;

    private Keys() {
    }

    public static String key(long number) {
        return "order-" + number;
    }

    public static String tag(long number) {
        return "tag" + number % TAG_COUNT;
    }
}
