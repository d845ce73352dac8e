// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.util.HashMap;
import java.util.Map;

/** The command line of a load: an operation, then pairs of `--name value`. */
public final class Arguments {
    private final String operation;
    private final Map<String, String> values = new HashMap<>();

    public Arguments(String[] words) {
        if (words.length % 2 == 0) {
            throw new IllegalArgumentException("usage: LOAD OPERATION --name value ...");
        }
        operation = words[0];
        for (int i = 1; i < words.length; i += 2) {
            if (!words[i].startsWith("--")) {
                throw new IllegalArgumentException("--name expected, not " + words[i]);
            }
            values.put(words[i].substring(2), words[i + 1]);
        }
    }

    public String operation() {
        return operation;
    }

    public String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    public int integer(String name) {
        return Integer.parseInt(text(name));
    }

    public double seconds() {
        return Double.parseDouble(text("seconds"));
    }

    /** An argument that not every load has. */
    public int integer(String name, int otherwise) {
        return values.containsKey(name) ? integer(name) : otherwise;
    }
}
