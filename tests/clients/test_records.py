# SPDX-License-Identifier: Apache-2.0
"""The cases of answers with records are what the server answers, and up to date."""

from array import array

import pytest

from libs.kernel.answer.encode_cy import encode_records
from tests.clients import records


def test_the_file_is_up_to_date() -> None:
    """`python -m tests.clients.records` writes it."""
    assert records.FILE.read_text() == records.text()


@pytest.mark.parametrize("case", records.accepted(), ids=lambda case: case["name"])
def test_the_kernel_sends_them(case: dict[str, object]) -> None:
    """Each accepted case is what the Indexer's kernel makes of these records."""
    data = bytes.fromhex(str(case["records"]))
    sizes = [one["recordSizeBytes"] for one in case["messages"]]  # type: ignore[attr-defined]
    places = [sum(sizes[:index]) for index in range(len(sizes))]
    made = encode_records(data, array("q", places), array("i", sizes), len(sizes), 1, b"")
    assert made.endswith(data)


@pytest.mark.parametrize("case", records.refused(), ids=lambda case: case["name"])
def test_the_kernel_does_not_send_the_others(case: dict[str, object]) -> None:
    """A refused case is no run of `record_count` records."""
    data = bytes.fromhex(str(case["records"]))
    at = count = 0
    while len(data) - at >= 91:
        size = int.from_bytes(data[at : at + 4], signed=True)
        try:
            encode_records(data, array("q", [at]), array("i", [size]), 1, 1, b"")
        except ValueError:
            break
        at, count = at + size, count + 1
    assert at != len(data) or count != case["record_count"]
