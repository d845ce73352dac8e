# SPDX-License-Identifier: Apache-2.0
"""The Indexer's disk is full: the segments that are deleted for it, the kept segments, and the notes."""

import pytest

from services.janitor.engine.facts import LOG_OWNER, Disk
from services.janitor.engine.policy import ForDisk
from tests.unit.services.janitor.support import FAR, SIZE, Owners, segment
from tests.unit.services.janitor.test_retention_loop import Room

SECOND_MS = 1_000


def young(count: int) -> Owners:
    """A log of segments that are an hour old, and the active segment."""
    segments = [segment(number, age_hours=1) for number in range(count)]
    return Owners([*segments, segment(count, age_hours=0, is_active=True)])


async def looks(room: Room, count: int) -> None:
    """Check once each second, after the first delay."""
    room.clock.advance(60_000)
    for _ in range(count):
        await room.loop.check()
        room.clock.advance(SECOND_MS)


@pytest.mark.parametrize(("other_bytes", "index_files"), [
    (880, []),
    (880, [(SIZE * number, 3) for number in range(1, 40)]),
    (1000 - 39, [(SIZE * number, 1) for number in range(1, 40)]),
])  # fmt: skip
async def test_a_file_of_somebody_else(
    other_bytes: int, index_files: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    """If other data fills the disk, ten minutes of checks delete no segment early, and a note is made.

    Appends continue. Files of the indexes could be deleted, too, but the disk would stay full.
    """
    owners = young(40)
    owners.other_bytes, owners.index_files = other_bytes, index_files
    room = Room(owners)
    await looks(room, 600)
    assert (owners.calls, len(owners.segments)) == ([], 41)
    assert not any(is_full for is_full, _ in owners.reports)
    (note,) = room.loop.statistics().disk_notes
    own_bytes = sum(size_bytes for _, size_bytes in index_files)
    assert note.outcome is ForDisk.NOT_OURS
    assert f"of its 1000 bytes {own_bytes} are the indexes' files, {other_bytes} others'" in note.text
    assert [one.message for one in caplog.records].count(note.text) == 1
    assert owners.dry_run_count == 600


async def test_only_what_its_disk_needs_and_gets(caplog: pytest.LogCaptureFixture) -> None:
    """The fewest segments are deleted whose index files bring the disk to 85 %; further checks delete no more."""
    owners = young(40)
    owners.index_files = [(3 * SIZE, 10), (7 * SIZE, 30), (8 * SIZE, 30), (FAR, 810)]
    room = Room(owners)
    await looks(room, 600)
    assert owners.calls == [("trim", 7 * SIZE), *(("delete", number * SIZE) for number in range(7))]
    assert owners.own_bytes == 840
    assert owners.dry_run_count < 6
    assert room.loop.statistics().disk_notes == []
    assert "the indexer's file system has room again" in caplog.text


async def test_no_segment_goes_behind_the_last_one_that_frees_something() -> None:
    """If the indexes can't free enough, they free all that they can, and the log keeps its other segments."""
    owners = young(40)
    owners.index_files = [(4 * SIZE, 10), (FAR, 980)]
    room = Room(owners)
    await looks(room, 600)
    assert [call for call, _ in owners.calls] == ["trim", *["delete"] * 4]
    (note,) = room.loop.statistics().disk_notes
    assert note.outcome is ForDisk.NO_GAIN


async def test_what_an_indexer_promises_and_does_not_keep() -> None:
    """After a run that freed nothing on the disk no run is made for it until it had room."""
    owners = young(40)
    owners.index_files = [(2 * SIZE, 100), (FAR, 800)]
    kept = list(owners.index_files)
    owners.after_delete = lambda: None
    real = owners.trim_to

    async def trim_to(min_physical_offset: int, *, is_dry_run: bool):
        trimmed = await real(min_physical_offset, is_dry_run=is_dry_run)
        owners.index_files = list(kept)
        return trimmed if is_dry_run else type(trimmed)(0)

    owners.trim_to = trim_to  # type: ignore[method-assign]
    room = Room(owners)
    await looks(room, 600)
    assert len(owners.segments) == 39
    owners.index_files = kept[:1]
    kept[:] = owners.index_files
    await looks(room, 1)
    kept[:] = [(5 * SIZE, 100), (FAR, 800)]
    owners.index_files = list(kept)
    await looks(room, 1)
    assert len(owners.segments) == 36


async def test_a_disk_of_the_log_is_freed_as_ever() -> None:
    """The log's own disk is freed with any state of the Indexer's disk."""
    owners = young(40)
    owners.other_bytes = 990
    owners.disks[LOG_OWNER] = Disk(LOG_OWNER, 87, total_bytes=100 * SIZE)
    room = Room(owners)
    owners.after_delete = lambda: owners.disks.update({LOG_OWNER: Disk(LOG_OWNER, 85, total_bytes=100 * SIZE)})
    await looks(room, 600)
    assert len(owners.segments) == 39
    assert [one.service for one in room.loop.statistics().disk_notes] == ["indexer"]
