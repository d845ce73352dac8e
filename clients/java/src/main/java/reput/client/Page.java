// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * A page of a list.
 *
 * @param nextToken of the page behind it, "" at the end
 */
record Page<T>(List<T> items, String nextToken) {
    /** Iterates over all pages, each of which is fetched when it is needed. Takes what fetches the page of a token. */
    static <T> Iterator<T> items(Function<String, Page<T>> fetch) {
        return Stream
                .iterate(fetch.apply(""), Objects::nonNull, page -> page.isLast() ? null : fetch.apply(page.nextToken))
                .flatMap(page -> page.items.stream())
                .iterator();
    }

    private boolean isLast() {
        return nextToken.isEmpty();
    }
}
