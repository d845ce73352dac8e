# SPDX-License-Identifier: Apache-2.0
"""Segment: cursors, syncs, holds, truncation; and the budget that takes mappings away."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.machine.failpoints import armed
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.chain import SegmentChain
from libs.segments.errors import SegmentUnreadable, WriteFailed
from libs.segments.map_budget import MapBudget
from libs.segments.segment import CLEAR_CHUNK_BYTES, Segment, SharedState
from tests.support.patience import LIMIT_S
from tests.support.watched_buffer import WatchedBuffer

SIZE = 8192


def segment_in(fs: MemoryFs, name: str = "s", *, size_bytes: int = SIZE, maps: MapBudget | None = None) -> Segment:
    return Segment(
        SharedState(fs, size_bytes, maps=maps),
        Path("/") / name,
        SIZE,
        mapped=fs.create_mapped(Path("/") / name, size_bytes),
    )


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


def test_cursors_only_advance(fs: MemoryFs) -> None:
    """`advance` publishes and `sync` makes durable; neither moves a cursor back or past the end."""
    segment = segment_in(fs)
    segment.buffer[:3] = b"abc"
    segment.advance(3)
    assert (segment.wrote_position, segment.flushed_position, segment.end_physical_offset) == (3, 0, SIZE + 3)
    assert segment.sync() == 3
    assert segment.flushed_position == 3
    for position in (2, SIZE + 1, -1):
        with pytest.raises(AssertionError):
            segment.advance(position)
    assert not segment.is_full
    segment.advance(SIZE)
    assert segment.is_full


def test_sync_covers_what_was_published_before_it(fs: MemoryFs) -> None:
    """Bytes that are published while a sync runs wait for the next sync."""
    segment = segment_in(fs)
    segment.advance(10)
    with armed("segment.before_sync", lambda: segment.advance(20)):
        assert segment.sync() == 10
    assert (segment.wrote_position, segment.flushed_position) == (20, 10)


def test_a_sync_without_news_does_not_reach_the_disk(fs: MemoryFs) -> None:
    """A sync without new bytes does not reach the disk."""
    segment = segment_in(fs)
    with armed("segment.before_sync", lambda: pytest.fail("synced")):
        assert segment.sync() == 0


def test_syncs_of_one_chain_take_turns(fs: MemoryFs) -> None:
    """A second sync waits for the first, so an error can't be hidden by a neighbour's success."""
    segment = segment_in(fs)
    segment.advance(10)
    is_running = threading.Event()
    may_end = threading.Event()
    results: list[int] = []

    def pause() -> None:
        is_running.set()
        assert may_end.wait(LIMIT_S)

    with armed("segment.before_sync", pause):
        first = threading.Thread(target=lambda: results.append(segment.sync()))
        first.start()
        assert is_running.wait(LIMIT_S)
        second = threading.Thread(target=lambda: results.append(segment.sync()))
        second.start()
        assert results == []
        may_end.set()
        first.join(LIMIT_S)
        second.join(LIMIT_S)
    assert results == [10, 10]


def test_a_held_segment_keeps_its_mapping(fs: MemoryFs) -> None:
    """After a close, the last reader's release unmaps the segment, and there is no new hold."""
    segment = segment_in(fs)
    assert segment.hold()
    assert segment.hold()
    segment.close()
    assert not segment.hold()
    segment.release()
    assert (segment.is_held, segment.is_mapped) == (True, True)
    segment.release()
    assert (segment.is_held, segment.is_mapped) == (False, False)
    with pytest.raises(AssertionError):
        segment.release()
    segment.close()


def test_a_closed_segment_can_not_be_touched(fs: MemoryFs) -> None:
    """A touch of a closed segment is a programmer's mistake, and the error names the path."""
    segment = segment_in(fs)
    segment.close()
    with pytest.raises(AssertionError, match="/s is closed"):
        _ = segment.buffer


def test_a_sync_of_a_deleted_segment_is_none(fs: MemoryFs) -> None:
    """A sync of a deleted segment does nothing, so that a sync of several segments continues with the others."""
    segment = segment_in(fs)
    segment.buffer[:3] = b"abc"
    segment.advance(3)
    segment.delete()
    assert segment.sync() == 0


def test_truncate_looks_only_at_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearing a segment that is mostly unwritten does not read it as a whole."""
    path, size_bytes = tmp_path / "s", 64 << 20
    mapped = PosixFs().create_mapped(path, size_bytes)
    segment = Segment(SharedState(PosixFs(), size_bytes), path, 0, wrote_position=size_bytes, mapped=mapped)
    positions = (100, 5_000, 40 << 20)
    for position in positions:
        segment.buffer[position] = 1
    watched = WatchedBuffer(segment.buffer)
    monkeypatch.setattr(Segment, "buffer", watched)
    segment.truncate(101)
    assert watched.looked_at_bytes < 16 << 20
    assert [mapped.buffer[position] for position in positions] == [1, 0, 0]
    segment.close()


@pytest.mark.parametrize("size_bytes", [SIZE, 2 * CLEAR_CHUNK_BYTES + SIZE])
def test_truncate_clears_stale_bytes_for_good(fs: MemoryFs, size_bytes: int) -> None:
    """No byte above the position survives, wherever it is; none below is touched."""
    segment = segment_in(fs, size_bytes=size_bytes)
    segment.buffer[:] = b"x" * size_bytes
    segment.advance(size_bytes)
    segment.sync()
    segment.truncate(100)
    assert (segment.wrote_position, segment.flushed_position) == (100, 100)
    fs.crash()
    assert fs.read(Path("/s")) == (b"x" * 100).ljust(size_bytes, b"\0")


def test_truncate_of_clean_space_writes_nothing(fs: MemoryFs) -> None:
    """Space that is zeros already costs no sync, and unsynced bytes below stay unsynced."""
    segment = segment_in(fs)
    segment.buffer[:3] = b"abc"
    segment.advance(SIZE)
    with armed("segment.before_sync", lambda: pytest.fail("synced")):
        segment.truncate(3)
    assert (segment.wrote_position, segment.flushed_position) == (3, 0)
    with pytest.raises(AssertionError):
        segment.truncate(4)


def test_the_budget_spares_who_needs_the_mapping(fs: MemoryFs) -> None:
    """Held and unsynced segments stay mapped even above the budget; idle segments are unmapped first."""
    maps = MapBudget(mapped_count_max=2)
    held, dirty, idle = (segment_in(fs, name, maps=maps) for name in ("held", "dirty", "idle"))
    assert maps.mapped_count == 2
    assert held.hold()
    dirty.buffer[0] = 1
    dirty.advance(1)
    assert idle.buffer[0] == 0
    assert (held.is_mapped, dirty.is_mapped, idle.is_mapped) == (True, True, True)
    new = segment_in(fs, "new", maps=maps)
    assert (held.is_mapped, dirty.is_mapped, idle.is_mapped, new.is_mapped) == (True, True, False, True)
    held.release()
    dirty.sync()
    assert idle.buffer[0] == 0
    assert maps.mapped_count <= 2 + 1


def test_the_budget_prefers_who_was_not_touched(fs: MemoryFs) -> None:
    """Second chance: of two idle segments, the segment that was used since the last round stays mapped."""
    maps = MapBudget(mapped_count_max=2)
    one, two = segment_in(fs, "one", maps=maps), segment_in(fs, "two", maps=maps)
    one.is_touched = two.is_touched = False
    _ = one.buffer
    segment_in(fs, "three", maps=maps)
    assert (one.is_mapped, two.is_mapped) == (True, False)


def test_views_outlive_eviction_on_a_real_disk(tmp_path: Path) -> None:
    """A writer whose view was taken before an eviction still writes to the file."""
    fs = PosixFs()
    maps = MapBudget(mapped_count_max=1)
    segments = [
        Segment(SharedState(fs, 4096, maps=maps), path, 0, mapped=fs.create_mapped(path, 4096))
        for path in (tmp_path / "0", tmp_path / "1")
    ]
    view = segments[0].buffer
    _ = segments[1].buffer
    segments[0].is_touched = segments[1].is_touched = False
    _ = segments[0].buffer
    _ = segments[1].buffer
    view[:3] = b"abc"
    segments[0].advance(3)
    assert segments[0].sync() == 3
    assert fs.read(tmp_path / "0")[:3] == b"abc"
    for segment in segments:
        segment.delete()
    assert bytes(view[:3]) == b"abc"
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_page_is_named(tmp_path: Path) -> None:
    """The error has the first page that can't be read, wherever the look at it began."""
    chain = SegmentChain(PosixFs(), tmp_path / "s", 1 << 20).open()
    segment = chain.roll()
    os.truncate(segment.path, 40 * PAGE_SIZE_BYTES)
    segment.check_readable(0, 40 * PAGE_SIZE_BYTES)
    with pytest.raises(SegmentUnreadable, match="the file ends") as caught:
        segment.check_readable(10, 1 << 20)
    assert (caught.value.path, caught.value.position) == (segment.path, 40 * PAGE_SIZE_BYTES)


DIRECTORY = -1
"""Stands for a directory that has the file's name, in the place of a size."""


@pytest.mark.parametrize("size_bytes", [None, DIRECTORY, 0, SIZE // 2, SIZE + 1])
@pytest.mark.parametrize(
    "touch", [lambda segment: segment.buffer, lambda segment: segment.hold(), lambda segment: segment.data_ranges(0)]
)
def test_a_file_that_somebody_changed_is_told(
    tmp_path: Path, size_bytes: int | None, touch: Callable[[Segment], object]
) -> None:
    """Each reader of a changed file gets SegmentUnreadable with file and position.

    The file was removed, replaced, emptied, shortened or lengthened by another program.
    """
    chain = SegmentChain(PosixFs(), tmp_path, SIZE).open()
    segment = chain.roll()
    assert segment.try_unmap()
    if size_bytes is None or size_bytes == DIRECTORY:
        segment.path.unlink()
    else:
        os.truncate(segment.path, size_bytes)
    if size_bytes == DIRECTORY:
        segment.path.mkdir()
    for _ in range(2):
        with pytest.raises(SegmentUnreadable) as caught:
            touch(segment)
        assert (caught.value.segment, caught.value.position) == (segment.path.name, max(0, min(size_bytes or 0, SIZE)))
    chain.close()


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_file_that_somebody_took_from_its_writer(tmp_path: Path, is_directory: bool) -> None:
    """The first room that is taken in a file that is gone, or no file any more, ends all writing, and names it."""
    chain = SegmentChain(PosixFs(), tmp_path, SIZE).open()
    segment = chain.roll()
    assert segment.try_unmap()
    segment.reserved_position = 0
    segment.path.unlink()
    if is_directory:
        segment.path.mkdir()
    with pytest.raises(WriteFailed, match=segment.path.name):
        segment.reserve(1)
    with pytest.raises(WriteFailed):
        segment.put(1)
    chain.close()
