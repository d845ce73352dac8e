# SPDX-License-Identifier: Apache-2.0
"""ConsumeQueue: the units that it writes, recognises, refuses and forgets."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from libs.formats.indexes.consume_queue import PRE_BLANK
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.machine.errors import DiskFull
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.errors import SegmentSizeWrong, StoreFull
from libs.segments.map_budget import MapBudget
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queue_rows import place
from services.indexer.engine.tables.stepped_over import SteppedOver
from services.indexer.engine.tables.unit_memory import MemoryBudget
from services.indexer.errors import QueueConflict
from tests.support import reference

DIRECTORY = Path("/data/consumequeue/T/0")
UNIT_COUNT = 4
RECORD_SIZE = 100


def open_queue(
    fs: MemoryFs, *, bound: int = 2**62, is_clean: bool = False, maps: MapBudget | None = None, topic: str = "T"
) -> ConsumeQueue:
    return ConsumeQueue(
        fs,
        DIRECTORY,
        topic=topic,
        queue_id=0,
        file_size_bytes=20 * UNIT_COUNT,
        maps=maps or MapBudget(64),
        memories=MemoryBudget(),
        bound_physical_offset=bound,
        is_clean=is_clean,
    )


def columns(first: int, count: int, *, physical: int | None = None, tag: int = -7) -> DispatchBatch:
    """Rows of queue offsets from `first` on; record k lies at 100 * k unless `physical` says otherwise."""
    offsets = np.arange(first, first + count, dtype=np.int64)
    start = 100 * first if physical is None else physical
    nothing = np.zeros(count, np.int32)
    return DispatchBatch(
        start_physical_offset=start,
        end_physical_offset=start + RECORD_SIZE * count,
        queues=[("T", 0)],
        physical_offsets=start + RECORD_SIZE * np.arange(count, dtype=np.int64),
        record_sizes=np.full(count, RECORD_SIZE, np.int32),
        queue_indexes=nothing,
        queue_offsets=offsets,
        tags_codes=np.full(count, tag, np.int64),
        store_times_ms=np.zeros(count, np.int64),
        key_counts=nothing,
        key_hashes=np.empty(0, np.int32),
    )


def append(queue: ConsumeQueue, rows: DispatchBatch, *, min_physical_offset: int = 0) -> list[int]:
    """Enter the rows that fit. Returns the numbers of the rows that are stepped over."""
    numbers = np.arange(len(rows.queue_offsets), dtype=np.int32)
    name = (queue.topic, queue.queue_id)
    placed = place(name, queue, numbers, rows, min_physical_offset=min_physical_offset, noted=SteppedOver())
    if len(placed.entered):
        queue.append(placed.entered, rows)
    return placed.stepped.tolist()


def data(fs: MemoryFs) -> dict[str, bytes]:
    return {name: fs.read(DIRECTORY / name) for name in fs.list(DIRECTORY)}


def name(unit: int) -> str:
    return f"{unit * 20:020d}"


def test_units_lie_where_rocketmq_puts_them() -> None:
    """Unit k is 20 big-endian bytes at 20 * k; the file after a full file is named after its first byte."""
    fs = MemoryFs()
    append(open_queue(fs), columns(0, 6, tag=-516329062))
    expected = b"".join(reference.queue_unit(100 * k, RECORD_SIZE, -516329062) for k in range(6)) + bytes(40)
    assert data(fs) == {name(0): expected[:80], name(4): expected[80:]}


def test_reads_cross_files_and_stop_at_the_end() -> None:
    """A read returns the existing units, from several files, and nothing beyond the end."""
    queue = open_queue(MemoryFs())
    append(queue, columns(0, 10))
    assert queue.read(2, 6).physical_offsets.tolist() == [200, 300, 400, 500, 600, 700]
    assert queue.read(9, 5).record_sizes.tolist() == [RECORD_SIZE]
    assert queue.read(10, 5).tags_codes.tolist() == []


def test_rows_are_picked_by_number() -> None:
    """Only the rows that belong to the queue are entered, in their order."""
    queue = open_queue(MemoryFs())
    every = columns(0, 6)
    picked = replace(every, queue_offsets=np.array([0, 9, 1, 9, 2, 9], np.int64))
    queue.append(np.array([0, 2, 4], np.int32), picked)
    assert queue.read(0, 9).physical_offsets.tolist() == [0, 200, 400]


def test_a_replay_changes_nothing() -> None:
    """Existing units are recognised, all of a batch or its first part, queue offset 0 too (Q22)."""
    fs = MemoryFs()
    queue = open_queue(fs)
    append(queue, columns(0, 3))
    once = data(fs)
    append(queue, columns(0, 3))
    append(queue, columns(0, 1))
    assert data(fs) == once
    append(queue, columns(1, 5))
    assert queue.read(0, 9).physical_offsets.tolist() == [0, 100, 200, 300, 400, 500]


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        (columns(0, 2, physical=5), 0),
        (columns(1, 4, tag=1), 1),
        (replace(columns(2, 1), record_sizes=np.array([99], np.int32)), 2),
    ],
    ids=["another place", "another tag", "another size"],
)
def test_another_record_at_a_taken_place_is_refused(rows: DispatchBatch, at: int) -> None:
    """A unit is only skipped if it agrees; otherwise nothing is written and the error has the place."""
    fs = MemoryFs()
    queue = open_queue(fs)
    append(queue, columns(0, 3))
    before = data(fs)
    with pytest.raises(QueueConflict) as caught:
        append(queue, rows)
    assert (caught.value.topic, caught.value.queue_offset) == ("T", at)
    assert data(fs) == before


def test_another_delivery_time_is_no_other_record() -> None:
    """A unit with another delivery time is recognised, and keeps its first time.

    The delay levels of the log may have changed since the message was entered.
    """
    fs = MemoryFs()
    queue = open_queue(fs, topic=SCHEDULE_TOPIC)
    append(queue, columns(0, 3, tag=5_000))
    append(queue, columns(1, 3, tag=9_000))
    assert queue.read(0, 9).tags_codes.tolist() == [5_000, 5_000, 5_000, 9_000]
    with pytest.raises(QueueConflict):
        append(queue, columns(0, 1, physical=7, tag=5_000))


def test_a_gap_is_stepped_over() -> None:
    """A unit is never written at the wrong place (Q23): neither after a hole nor from a batch with a hole."""
    fs = MemoryFs()
    queue = open_queue(fs)
    append(queue, columns(0, 3))
    before = data(fs)
    assert append(queue, columns(5, 2)) == [0, 1]
    assert append(queue, columns(1, 1, physical=900)) == [0]
    assert append(queue, columns(-1, 1, physical=900)) == [0]
    assert data(fs) == before
    holed = replace(columns(3, 4), queue_offsets=np.array([3, 4, 6, 5], np.int64))
    assert append(queue, holed) == [2]
    assert queue.read(0, 9).physical_offsets.tolist() == [0, 100, 200, 300, 400, 600]


def test_queue_offset_0_begins_the_queue_again() -> None:
    """Queue offset 0 behind the units of an older generation removes these units.

    It arrives in a batch with units of both generations, or by itself.
    """
    fs = MemoryFs()
    queue = open_queue(fs)
    append(queue, columns(0, 6))
    append(queue, columns(0, 2, physical=600))
    assert queue.read(0, 9).physical_offsets.tolist() == [600, 700]
    twice = replace(columns(2, 5, physical=800), queue_offsets=np.array([2, 0, 1, 2, 0], np.int64))
    assert append(queue, twice) == []
    assert queue.read(0, 9).physical_offsets.tolist() == [1200]
    assert append(queue, columns(0, 6)) == []
    assert queue.read(0, 9).physical_offsets.tolist() == [1200]


def test_an_empty_queue_begins_where_its_first_message_is() -> None:
    """RocketMQ's pre-blank units fill the file before the first message, and are no messages (Q7)."""
    fs = MemoryFs()
    queue = open_queue(fs)
    append(queue, columns(6, 1))
    assert data(fs) == {name(4): PRE_BLANK * 2 + reference.queue_unit(600, RECORD_SIZE, -7) + bytes(20)}
    assert (queue.min_queue_offset, queue.max_queue_offset) == (6, 7)
    queue.correct_min(0)
    again = open_queue(fs)
    again.correct_min(1)
    assert (again.min_queue_offset, again.max_queue_offset) == (6, 7)


def test_only_pre_blanks_are_an_empty_queue() -> None:
    """A queue with pre-blanks only may begin at any queue offset, also before them.

    A crash between the filling and the first unit leaves such a queue.
    """
    fs = MemoryFs()
    fs.make_directory(DIRECTORY)
    fs.create_mapped(DIRECTORY / name(4), 80).buffer[:40] = PRE_BLANK * 2
    queue = open_queue(fs)
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.is_empty) == (0, 0, True)
    append(queue, columns(0, 1))
    assert list(data(fs)) == [name(0)]


def test_a_queue_whose_messages_are_all_gone_may_jump() -> None:
    """If the log was trimmed before it was indexed, the queue continues at its next message."""
    queue = open_queue(MemoryFs())
    append(queue, columns(0, 3))
    assert append(queue, columns(9, 1), min_physical_offset=200) == [0]
    assert append(queue, columns(9, 1), min_physical_offset=201) == []
    assert (queue.min_queue_offset, queue.max_queue_offset) == (9, 10)


@pytest.mark.parametrize(
    ("min_physical_offset", "min_queue_offset"), [(0, 0), (1, 1), (100, 1), (450, 5), (900, 9), (901, 10), (5000, 10)]
)
def test_min_queue_offset_follows_the_log(min_physical_offset: int, min_queue_offset: int) -> None:
    """The min is the first unit whose record is kept; a queue without kept records keeps its numbering."""
    queue = open_queue(MemoryFs())
    append(queue, columns(0, 10))
    queue.correct_min(min_physical_offset)
    assert (queue.min_queue_offset, queue.max_queue_offset) == (min_queue_offset, 10)


def test_expired_files_go_but_never_the_last() -> None:
    """A file is removed when its last unit is below the offset; reads below the new min find nothing."""
    fs = MemoryFs()
    queue = open_queue(fs)
    append(queue, columns(0, 10))
    assert queue.detach_expired(300) == []
    expired = queue.detach_expired(301)
    assert len(expired) == 1
    assert queue.min_queue_offset == 4
    assert queue.read(0, 3).physical_offsets.tolist() == []
    expired += queue.detach_expired(10_000)
    assert len(expired) == 2
    for file in expired:
        file.delete()
    assert list(data(fs)) == [name(8)]
    assert queue.max_queue_offset == 10


@pytest.mark.parametrize(("bound", "kept"), [(0, 0), (1, 1), (300, 3), (301, 4), (400, 4), (950, 10), (10_000, 10)])
@pytest.mark.parametrize("reopens", [False, True])
def test_truncation_leaves_what_a_clean_build_would(bound: int, kept: int, reopens: bool) -> None:
    """After a cut to a physical offset, at once or at the open, the files have exactly the bytes of the kept units."""
    fs, clean = MemoryFs(), MemoryFs()
    queue = open_queue(fs)
    append(queue, columns(0, 10))
    if reopens:
        queue = open_queue(fs, bound=bound)
        assert queue.max_queue_offset == kept
    else:
        queue.truncate(bound)
    expected = open_queue(clean)
    if kept:
        append(expected, columns(0, kept))
    assert data(fs) == data(clean)
    assert (queue.min_queue_offset, queue.max_queue_offset) == (0, kept)


def test_damage_ends_the_queue() -> None:
    """Units from the first invalid unit on are dropped; a zero first unit is no message (Q8)."""
    fs = MemoryFs()
    append(open_queue(fs), columns(0, 7))
    fs.open_mapped(DIRECTORY / name(4)).buffer[:20] = bytes(20)
    queue = open_queue(fs)
    assert queue.max_queue_offset == 4
    assert list(data(fs)) == [name(0)]


def test_stale_units_behind_the_end_become_zeros() -> None:
    """Bytes of another store behind the end are zeroed, and never read as units."""
    fs = MemoryFs()
    append(open_queue(fs), columns(0, 2))
    fs.open_mapped(DIRECTORY / name(0)).buffer[60:80] = reference.queue_unit(70, 1, 1)
    assert open_queue(fs).max_queue_offset == 2
    assert data(fs)[name(0)][40:] == bytes(40)


def test_a_full_disk_is_no_loss() -> None:
    """StoreFull keeps the rows that fit; the same rows again complete the batch when there is room."""
    fs = MemoryFs()
    queue = open_queue(fs)

    def refuse(path: Path, size_bytes: int, **_options: int) -> None:
        raise DiskFull(path, needed_bytes=size_bytes)

    append(queue, columns(0, 4))
    create: Callable[..., object] = fs.create_mapped
    fs.create_mapped = refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreFull):
        append(queue, columns(2, 6))
    fs.create_mapped = create  # type: ignore[method-assign, assignment]
    append(queue, columns(2, 6))
    assert queue.read(0, 99).physical_offsets.tolist() == list(range(0, 800, 100))


def test_files_of_another_size_are_refused() -> None:
    """A store with another file size is not opened, because every unit would be at the wrong place."""
    fs = MemoryFs()
    fs.make_directory(DIRECTORY)
    fs.create_mapped(DIRECTORY / name(0), 100)
    with pytest.raises(SegmentSizeWrong):
        open_queue(fs)


def test_opening_maps_nothing() -> None:
    """Opened queues need no mapping until a read of the queue."""
    fs = MemoryFs()
    append(open_queue(fs), columns(0, 3))
    maps = MapBudget(2)
    queue = open_queue(fs, maps=maps)
    assert maps.mapped_count == 0
    assert queue.max_queue_offset == 3
    assert maps.mapped_count == 1


def test_dirty_pages_count_until_a_sync() -> None:
    """Dirty pages are counted by page number, as in RocketMQ, and not by bytes."""
    fs = MemoryFs()
    queue = ConsumeQueue(
        fs, DIRECTORY, topic="T", queue_id=0, file_size_bytes=20_000, maps=MapBudget(4),
        memories=MemoryBudget(), bound_physical_offset=0, is_clean=True,
    )  # fmt: skip
    append(queue, columns(0, 204))
    assert queue.dirty_page_count == 0
    append(queue, columns(204, 1))
    assert queue.dirty_page_count == 1
    queue.sync()
    assert queue.dirty_page_count == 0
