# SPDX-License-Identifier: Apache-2.0
"""A start of the CommitLog costs names, small files, and the end of the log, not earlier records.

After a clean stop the last segments are verified, as RocketMQ does. After an unclean stop the log is scanned, written
again and synced from the checkpoint on.
"""

from collections import Counter
from pathlib import Path

import pytest

from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.start.recovery import CLEAN_SCAN_SEGMENT_COUNT
from tests.cost.counting_fs import FsCall, bytes_by_operation, paths_of
from tests.cost.stored import BODY, CountedMachine
from tests.support.commitlog import SEGMENT_SIZE, fill

NAMES_ONLY = {"list", "exists", "is_directory", "size", "make_directory"}
SEGMENT_COUNTS = (6, 24)
MAPPED_COUNT_MAX = 4
SNAPSHOT_BYTES_PER_SEGMENT_MAX = 64


async def started(machine: CountedMachine) -> list[FsCall]:
    """The calls of a start to the file system."""
    with machine.fs.counted() as calls:
        log = await machine.start()
    await machine.kill(log)
    return calls


async def stopped(segment_count: int) -> CountedMachine:
    """A store of so many segments that was stopped in order."""
    machine = CountedMachine()
    async with machine.running() as log:
        await fill(log, segment_count, BODY)
    return machine


async def killed(segment_count: int, *, later_segment_count: int) -> CountedMachine:
    """A store that was killed when its last few segments were not yet known to be on the disk."""
    machine = CountedMachine()
    log = await machine.start()
    await fill(log, segment_count - later_segment_count, BODY)
    await write_small_files(log)
    await fill(log, segment_count, BODY)
    await machine.kill(log)
    return machine


async def write_small_files(log: OpenLog) -> None:
    """Make the log durable, and write down that it is."""
    await log.marks.flushed.soon(log.chain.max_physical_offset)
    await log.snapshot.save()
    await log.checkpoint.save()


def segment_numbers(paths: list[Path]) -> Counter[int]:
    """How often each segment is among these files, by its number from 0."""
    return Counter(int(path.name) // SEGMENT_SIZE for path in paths if path.parent.name == "commitlog")


def content_bytes(calls: list[FsCall]) -> dict[str, int]:
    """Bytes that each operation on segments was about."""
    return bytes_by_operation(call for call in calls if call.path.parent.name == "commitlog")


async def test_a_start_after_a_clean_stop_opens_the_last_segments() -> None:
    """As many segments are mapped and read with 24 as with 6: the last segments, each once."""
    costs = []
    for segment_count in SEGMENT_COUNTS:
        calls = await started(await stopped(segment_count))
        last = set(range(segment_count - CLEAN_SCAN_SEGMENT_COUNT, segment_count))
        assert segment_numbers(paths_of(calls, "open_mapped")) == Counter(last)
        assert set(segment_numbers(paths_of(calls, "check_readable", "data_ranges"))) == last
        assert not segment_numbers(paths_of(calls, "sync", "write", "create_mapped"))
        costs.append(content_bytes(calls))
    assert costs[0] == costs[1]
    assert costs[0]["check_readable"] <= (CLEAN_SCAN_SEGMENT_COUNT + 1) * SEGMENT_SIZE


async def test_a_start_reads_small_files_that_stay_small() -> None:
    """Of the files that are read only the snapshot has something for each segment: its base and two times."""
    sizes = []
    for segment_count in SEGMENT_COUNTS:
        calls = await started(await stopped(segment_count))
        sizes.append(bytes_by_operation(calls)["read"])
        assert max(Counter(paths_of(calls, "read")).values()) == 1
    assert sizes[1] - sizes[0] <= SNAPSHOT_BYTES_PER_SEGMENT_MAX * (SEGMENT_COUNTS[1] - SEGMENT_COUNTS[0])


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_start_asks_for_the_name_and_size_of_a_segment(is_clean: bool) -> None:
    """An unneeded segment costs nothing else, after a clean stop and after a kill."""
    counts = []
    for segment_count in SEGMENT_COUNTS:
        machine = await (stopped(segment_count) if is_clean else killed(segment_count, later_segment_count=2))
        calls = await started(machine)
        counts.append(Counter(call.operation for call in calls))
    further = SEGMENT_COUNTS[1] - SEGMENT_COUNTS[0]
    assert counts[1] - counts[0] == {"size": further}


@pytest.mark.parametrize("later_segment_count", [1, 4])
async def test_a_start_after_a_kill_works_on_what_is_past_the_checkpoint(later_segment_count: int) -> None:
    """Segments past the checkpoint are mapped, scanned, written again and synced, with 24 segments as with 6."""
    costs = []
    for segment_count in SEGMENT_COUNTS:
        calls = await started(await killed(segment_count, later_segment_count=later_segment_count))
        past = set(range(segment_count - later_segment_count - 1, segment_count))
        assert segment_numbers(paths_of(calls, "open_mapped")) == Counter(past)
        assert set(segment_numbers(paths_of(calls, "check_readable", "write", "sync"))) == past
        costs.append(content_bytes(calls))
    assert costs[0] == costs[1]
    assert costs[0]["check_readable"] <= (later_segment_count + 2) * SEGMENT_SIZE


@pytest.mark.parametrize("is_clean", [True, False])
async def test_reading_all_of_the_log_maps_no_more_than_the_budget(is_clean: bool) -> None:
    """However many segments were read since a start, only so many stay mapped, after any stop."""
    machine = await (stopped(24) if is_clean else killed(24, later_segment_count=2))
    async with machine.running() as log:
        log.chain.maps.mapped_count_max = MAPPED_COUNT_MAX
        for segment in log.chain.segments:
            assert len(segment.buffer) == SEGMENT_SIZE
        assert log.chain.maps.mapped_count <= MAPPED_COUNT_MAX
