# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers: each refusal names the field, the value and the nearest value that is allowed."""

import pytest
from reput.commitlog.v1.segment_service_pb2 import ListSegmentsRequest

from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument


@pytest.mark.parametrize(
    ("value", "least", "most", "limit", "text"),
    [
        (-1, 0, 9, 0, "n: must be from 0 to 9"),
        (10, 0, 9, 9, "n: must be from 0 to 9"),
        (0, 1, 2**63 - 1, 1, "n: must be 1 or more"),
    ],
)
def test_what_is_outside_is_refused(value: int, least: int, most: int, limit: int, text: str) -> None:
    """A number outside the range raises BadArgument with the nearest end as its limit, and a text."""
    with pytest.raises(BadArgument) as caught:
        check_range(value, "n", least=least, most=most)
    assert (caught.value.field, caught.value.value, caught.value.limit, str(caught.value)) == ("n", value, limit, text)


def test_both_ends_are_inside() -> None:
    """The least and the greatest number are accepted."""
    assert [check_range(value, "n", least=1, most=3) for value in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize(("value", "size"), [(0, 5), (3, 3), (99, 10)])
def test_sizes_of_pages(value: int, size: int) -> None:
    """None means the default, and a larger size than the maximum means the maximum."""
    assert size_of_page(ListSegmentsRequest(page_size=value), "page_size", default=5, most=10) == size
