# SPDX-License-Identifier: Apache-2.0
"""Damage of the log and of the small files has its place. Every kind of damage is in `tests/exhaustive/cli`."""

import json
from pathlib import Path

import pytest

from tests.support.damage import Target
from tests.support.log_damage import KEYED
from tests.support.made_store import SEGMENT_SIZE, verified
from tests.support.records import encoded


def test_copy_of_a_cut_tail_is_a_note(store: Path) -> None:
    """The bytes that recovery cut off are a note with their place."""
    directory = store / "reput" / "cut"
    directory.mkdir()
    (directory / "00000000000000012345-2").write_bytes(b"tail")
    _, found, _ = verified(store)
    assert [(finding.code, finding.severity, finding.physical_offset) for finding in found] == [
        ("CUT_COPY", "note", 12345)
    ]


def test_place_of_a_damaged_record_is_named(store: Path) -> None:
    """A finding has the file, position and physical offset of the damage."""
    target = Target(store)
    target.write_record(KEYED, 90, b"\xff")
    physical_offset = target.records[KEYED].physical_offset
    _, found, _ = verified(store)
    assert (found[0].file, found[0].position) == (
        f"commitlog/{physical_offset - physical_offset % SEGMENT_SIZE:020d}",
        physical_offset % SEGMENT_SIZE,
    )
    assert found[0].physical_offset == physical_offset
    assert json.dumps(found[0].message)


@pytest.mark.parametrize(("tail", "code"), [(b"\x01\x01", "LOG_RECORD_LENGTH"), (bytes(2), "LOG_HOLE")])
def test_a_segment_may_end_before_the_size_of_a_record_does(tmp_path: Path, tail: bytes, code: str) -> None:
    """Too few bytes for a record at the end of a segment are reported, also if the next segment has whole records.

    The report is that of other damage of a killed store.
    """
    first = encoded(0) + tail
    second = encoded(len(first), queue_offset=8).ljust(len(first), b"\0")
    (tmp_path / "commitlog").mkdir()
    for base, data in ((0, first), (len(first), second)):
        (tmp_path / "commitlog" / f"{base:020d}").write_bytes(data)
    (tmp_path / "abort").write_text("123")
    assert code in {finding.code for finding in verified(tmp_path)[1]}
