# SPDX-License-Identifier: Apache-2.0
"""Stores in which another program began a queue again are in order, with queue files of any generation."""

import asyncio
from pathlib import Path

import pytest

from cli.verify.findings import Finding
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.manual_clock import ManualClock
from services.indexer.engine.offline_rebuild import rebuild
from tests.support.commitlog import append, log_on, message
from tests.support.made_store import QUEUE_FILE_SIZE, SEGMENT_SIZE, commit_log_config, indexer_config, verified
from tests.support.records import encoded

OLD_COUNT, NEW_COUNT = 40, 9


async def _appended(data_dir: Path, count: int) -> None:
    async with log_on(PosixFs(), commit_log_config(data_dir), ManualClock()) as log:
        await append(log, *(message() for _ in range(count)))


def _write_foreign(data_dir: Path, queue_offsets: list[int]) -> int:
    """Write records as RocketMQ appends them. Returns the physical offset of the first record."""
    segment = data_dir / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    start = end = len(bytes(data).rstrip(b"\0"))
    for queue_offset in queue_offsets:
        time_ms = ManualClock().now_ms()
        made = encoded(end, topic="orders", queue_id=0, queue_offset=queue_offset, store_time_ms=time_ms)
        data[end : end + len(made)] = made
        end += len(made)
    segment.write_bytes(data)
    (data_dir / "abort").write_bytes(b"4711")
    return start


async def _indexed(data_dir: Path, end_physical_offset: int | None = None) -> None:
    await rebuild(
        PosixFs(),
        indexer_config(data_dir),
        log_data_dir=data_dir,
        segment_size_bytes=SEGMENT_SIZE,
        clock=ManualClock(),
        end_physical_offset=end_physical_offset,
    )


def _make(data_dir: Path, *, odd: tuple[int, ...] = (), is_behind: bool = False) -> None:
    asyncio.run(_appended(data_dir, OLD_COUNT))
    begin = _write_foreign(data_dir, [*range(NEW_COUNT), *odd])
    asyncio.run(_appended(data_dir, 1))
    asyncio.run(_indexed(data_dir, begin if is_behind else None))


def _found(data_dir: Path) -> tuple[set[str], list[Finding]]:
    findings = verified(data_dir)[1]
    return {found.code for found in findings}, [found for found in findings if found.severity == "fault"]


def test_a_new_generation_is_no_fault(tmp_path: Path) -> None:
    """The old records have no unit, and the log continues at the end of the new records.

    A note reports the new generation.
    """
    _make(tmp_path)
    codes, faults = _found(tmp_path)
    assert faults == []
    assert codes - {"TOPIC_UNKNOWN"} == {"QUEUES_BEGUN_AGAIN"}


def test_what_was_stepped_over_is_no_fault(tmp_path: Path) -> None:
    """Records that the Indexer stepped over are no fault if index_progress has them."""
    _make(tmp_path, odd=(99, 3))
    codes, faults = _found(tmp_path)
    assert faults == []
    assert codes - {"TOPIC_UNKNOWN"} == {"QUEUES_BEGUN_AGAIN", "RECORDS_STEPPED_OVER"}
    (tmp_path / "reput" / "index_progress").unlink()
    assert {found.code for found in _found(tmp_path)[1]} >= {"LOG_QUEUE_OFFSET_GAP", "LOG_QUEUE_OFFSET_REPEAT"}


def test_an_indexer_that_has_yet_to_see_it_is_behind(tmp_path: Path) -> None:
    """An Indexer that has not read the new generation is behind; its files are of the old generation, and whole."""
    _make(tmp_path, odd=(99,), is_behind=True)
    codes, faults = _found(tmp_path)
    assert faults == []
    assert codes >= {"QUEUES_BEGUN_AGAIN", "QUEUES_BEHIND"}


@pytest.mark.parametrize("unit", [0, 3, NEW_COUNT])
def test_damage_of_the_new_generation_is_found(tmp_path: Path, unit: int) -> None:
    """A unit of the new generation that points to an old record is found, at any place."""
    _make(tmp_path)
    path = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    assert len(data) == QUEUE_FILE_SIZE
    data[20 * unit : 20 * unit + 8] = bytes(8)
    path.write_bytes(data)
    assert "QUEUE_UNIT_OTHER_RECORD" in {found.code for found in _found(tmp_path)[1]}
