# SPDX-License-Identifier: Apache-2.0
"""How large the next answer of a stream may be: small at first, and twice as much for each answer that was read.

A stream makes its next answer when the reader has read the last one, so a stream that nobody reads holds little, and
one that is read has large answers after a few.
"""

from collections.abc import Iterator

FIRST_BYTES = 64 << 10


def answer_sizes(most_bytes: int) -> Iterator[int]:
    """Yield sizes in bytes, without an end."""
    size_bytes = min(FIRST_BYTES, most_bytes)
    while True:
        yield size_bytes
        size_bytes = min(2 * size_bytes, most_bytes)
