# SPDX-License-Identifier: Apache-2.0
"""Sizes of a stream's answers: small at first, and doubled for each answer that was read.

A stream makes its next answer when the reader has read the last answer. So a stream without an active reader holds
little memory, and a stream with an active reader soon has large answers.
"""

from collections.abc import Iterator

FIRST_BYTES = 64 << 10


def answer_sizes(most_bytes: int) -> Iterator[int]:
    """Yield sizes in bytes, without end."""
    size_bytes = min(FIRST_BYTES, most_bytes)
    while True:
        yield size_bytes
        size_bytes = min(2 * size_bytes, most_bytes)
