# SPDX-License-Identifier: Apache-2.0
"""Sizes of a stream's answers."""

import itertools

import pytest

from libs.log.answer_sizes import FIRST_BYTES, answer_sizes


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, [1, 1, 1, 1]),
        (FIRST_BYTES, [FIRST_BYTES] * 4),
        (3 * FIRST_BYTES, [FIRST_BYTES, 2 * FIRST_BYTES, 3 * FIRST_BYTES, 3 * FIRST_BYTES]),
    ],
)
def test_they_grow_up_to_what_was_asked_for(most: int, sizes: list[int]) -> None:
    """Sizes double with each answer up to the maximum.

    The first size is FIRST_BYTES, or the maximum if it is smaller.
    """
    assert list(itertools.islice(answer_sizes(most), 4)) == sizes
