# SPDX-License-Identifier: Apache-2.0
"""`reput verify` on a sound store: nothing is found, with any of its parts present."""

import shutil
from pathlib import Path

import pytest

from libs.machine.posix_fs import PosixFs
from libs.machine.testing.manual_clock import ManualClock
from tests.support.commitlog import log_on
from tests.support.made_store import MESSAGE_COUNT, SEGMENT_SIZE, commit_log_config, index, verified


def test_sound_store_has_neither_fault_nor_note(store: Path) -> None:
    """A store that was stopped in order is sound, and all of it was looked at."""
    summary, found, report = verified(store)
    assert found == []
    assert report.fault_count == report.note_count == 0
    assert (summary.record_count, summary.unit_count) == (MESSAGE_COUNT, MESSAGE_COUNT)
    assert summary.index_entry_count == 600
    assert summary.segment_count == 5


async def test_a_log_that_ends_with_a_closed_segment_is_sound(store: Path) -> None:
    """The end of the log is behind the blank, at the begin of a next segment that does not exist yet."""
    segments = sorted((store / "commitlog").iterdir())
    for path in (segments[-1], store / "checkpoint", store / "epochFileCheckpoint", store / "reput" / "queue_offsets"):
        path.unlink()
    async with log_on(PosixFs(), commit_log_config(store), ManualClock()) as log:
        assert log.chain.max_physical_offset == (len(segments) - 1) * SEGMENT_SIZE
    await index(store)
    _, found, _ = verified(store)
    assert found == []


@pytest.mark.parametrize(
    ("gone", "notes"),
    [
        (("consumequeue", "index"), {"NO_QUEUES", "NO_INDEX"}),
        (("commitlog",), {"NO_LOG"}),
        (("commitlog", "index"), {"NO_LOG", "NO_INDEX"}),
        (("reput", "config", "checkpoint", "epochFileCheckpoint", "lock"), set()),
    ],
)
def test_part_of_a_store_is_checked_by_itself(store: Path, gone: tuple[str, ...], notes: set[str]) -> None:
    """A log without indexes, indexes without a log, and a store without small files are sound."""
    for name in gone:
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _, found, report = verified(store)
    assert {finding.code for finding in found} == notes
    assert report.fault_count == 0
