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
 * @param nextToken token of the next page, "" at the end
 */
record Page<T>(List<T> items, String nextToken) {
    /** Iterates over the items of all pages; pages are fetched as needed. {@code fetch} gets the page of a token. */
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
