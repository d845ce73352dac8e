# SPDX-License-Identifier: Apache-2.0
"""ConsumeQueueTable: the existing queues, the distribution of batches to queues, and the names that become paths."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.formats.records import record
from libs.formats.state.index_progress import IndexProgress, StepReason
from libs.machine.errors import DiskFull
from libs.machine.fs import Fs
from libs.machine.testing.faulty_fs import Fault, FaultyFs, no_faults
from libs.machine.testing.memory_fs import MemoryFs, MemoryMappedFile
from libs.segments.errors import StoreFull, SyncFailed
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.errors import SyncNeeded
from tests.support.fake_log import FakeLog
from tests.support.patience import LIMIT_S

DIRECTORY = Path("/data/consumequeue")


def make_table(fs: Fs, *, bound: int = 0, clean_end_sum: int = -1, mapped: int = 1_024) -> ConsumeQueueTable:
    """A table after a clean stop with so many units, or after an unclean stop."""
    table = ConsumeQueueTable(fs, DIRECTORY, file_size_bytes=20 * 16, mapped_file_count_max=mapped)
    table.load(IndexProgress(is_clean=clean_end_sum >= 0, queue_physical_offset=bound, queue_end_sum=clean_end_sum))
    return table


def feed(table: ConsumeQueueTable, log: FakeLog) -> list[tuple[str, int]]:
    return [queue for batch in log.batches() for queue in table.append(batch)]


def ends(table: ConsumeQueueTable) -> dict[tuple[str, int], int]:
    found = {}
    for topic in table.topics():
        for queue_id in table.queue_ids(topic):
            queue = table.find(topic, queue_id)
            assert queue is not None
            found[topic, queue_id] = queue.max_queue_offset
    return found


def test_each_record_reaches_its_queue_and_no_other() -> None:
    """Records of several topics and queues, mixed in a batch, get a unit each in their own queue, in log order."""
    log, table = FakeLog(), make_table(MemoryFs())
    for index in range(60):
        log.append("AB"[index % 2], index % 3)
    assert set(feed(table, log)) == {(topic, queue_id) for topic in "AB" for queue_id in range(3)}
    assert ends(table) == {(topic, queue_id): 10 for topic in "AB" for queue_id in range(3)}
    queue = table.find("B", 2)
    assert queue is not None
    mine = [made.physical_offset for made in log.records if (made.topic, made.queue_id) == ("B", 2)]
    assert queue.read(0, 99).physical_offsets.tolist() == mine


def test_prepared_and_rolled_back_take_no_place() -> None:
    """A transaction's prepared and rolled back records are in no queue; a committed record is."""
    log, table = FakeLog(), make_table(MemoryFs())
    for kind in (record.TRANSACTION_PREPARED, record.TRANSACTION_COMMIT, record.TRANSACTION_ROLLBACK):
        log.append("T", 0, sys_flag=kind)
    feed(table, log)
    assert ends(table) == {("T", 0): 1}


@pytest.mark.parametrize("topic", ["../x", "..", "a/b", "", ".", "a b", "\u00e9", "x" * 256, "a\x00b", "x@g"])
def test_names_that_are_no_topics_never_become_paths(topic: str) -> None:
    """A record whose topic is no valid name is stepped over and leaves no file."""
    log, fs = FakeLog(), MemoryFs()
    table = make_table(fs)
    version = 2 if len(topic) > 127 else 1
    log.append(topic, 0, version=version)
    (batch,) = log.batches()
    assert table.append(batch) == []
    (note,) = table.stepped_over.notes()
    assert (note.topic, note.queue_id, note.reason, note.record_count) == (topic, 0, StepReason.NAME, 1)
    assert fs.list(DIRECTORY) == []
    assert fs.list(Path("/data")) == ["consumequeue"]


def test_other_names_in_the_directory_are_left_alone() -> None:
    """Only topics with queue numbers are opened; other files and directories stay."""
    fs = MemoryFs()
    for path in ("T/0", "T/00", "T/x", "T/-1", "T/99999999999", "no topic/0"):
        fs.make_directory(DIRECTORY / path)
    fs.write_atomic(DIRECTORY / "file", b"")
    table = make_table(fs, bound=1)
    assert table.topics() == ["T"]
    assert table.queue_ids("T") == [0]


def test_with_nothing_certain_the_files_go_unread() -> None:
    """With a bound of 0 the files of queues are removed even if they are damaged, and nothing else is."""
    fs = MemoryFs()
    for path in ("T/0", "T/1", "T/x", "U/0"):
        fs.make_directory(DIRECTORY / path)
    for path in ("T/0/00000000000000000320", "T/0/00000000000000009600", "T/1/00000000000000000000.tmp", "U/0/mine"):
        fs.write_atomic(DIRECTORY / path, b"x")
    table = make_table(fs)
    assert table.topics() == []
    assert fs.list(DIRECTORY / "T") == ["x"]
    assert fs.list(DIRECTORY / "U" / "0") == ["mine"]


def test_after_a_clean_stop_nothing_is_read() -> None:
    """Opening a clean store maps no file, and the queues exist all the same."""
    log, fs = FakeLog(), MemoryFs()
    for queue_id in range(40):
        log.append("T", queue_id)
    feed(make_table(fs), log)
    table = make_table(fs, bound=log.end_physical_offset, clean_end_sum=40)
    assert table.sums.queue_count == table.file_count == 40
    assert table.find("T", 41) is None
    assert set(ends(table).values()) == {1}


def test_after_an_unclean_stop_every_queue_is_cut_at_once() -> None:
    """Units past the bound are removed from all queues on the disk before a new unit is entered."""
    log, fs = FakeLog(), MemoryFs()
    for index in range(40):
        log.append("T", index % 4)
    feed(make_table(fs), log)
    bound = log.records[20].physical_offset
    make_table(fs, bound=bound)
    later = make_table(fs, bound=log.end_physical_offset, clean_end_sum=20)
    assert set(ends(later).values()) == {5}


def test_few_files_are_mapped_however_many_there_are() -> None:
    """A bounded number of mappings serves any number of queues, also while they are written."""
    log, table = FakeLog(), make_table(MemoryFs(), mapped=3)
    for index in range(80):
        log.append("T", index % 40)
    for batch in log.batches(record_count_max=10):
        while True:
            try:
                table.append(batch)
                break
            except SyncNeeded:
                for queue in table.begin_sync(0):
                    queue.sync()
                table.end_sync()
    assert set(ends(table).values()) == {2}


def test_dirty_queues_are_handed_out_once() -> None:
    """A queue that a flush takes is no longer dirty."""
    log, table = FakeLog(), make_table(MemoryFs())
    log.append("T", 0)
    log.append("T", 1)
    feed(table, log)
    taken = table.begin_sync(0)
    assert len(taken) == 2
    table.end_sync()
    assert table.begin_sync(0) == []


def test_what_a_sync_is_at_work_on_stays_mapped() -> None:
    """Queues that a sync writes stay mapped and count beside the dirty queues; a queue in both sets counts once."""
    log, table = FakeLog(), make_table(MemoryFs(), mapped=4)  # three of them may have unsynced units
    for queue_id in (0, 1, 1, 2, 3):
        log.append("T", queue_id)
    batches = log.batches(record_count_max=1)
    for _ in range(2):
        table.append(next(batches))
    table.begin_sync(0)
    for _ in range(2):  # queue 1 again, and a third queue
        table.append(next(batches))
    batch = next(batches)
    with pytest.raises(SyncNeeded):
        table.append(batch)
    table.end_sync()
    table.append(batch)
    assert [queue.queue_id for queue in table.begin_sync(0)] == [1, 2, 3]


def test_trim_removes_old_files_and_moves_every_min() -> None:
    """After a trim no reader sees older messages; queues with a single file keep it."""
    log, fs = FakeLog(), MemoryFs()
    table = make_table(fs)
    for index in range(50):
        log.append("T", 0 if index % 5 else 1)
    feed(table, log)
    assert table.trim(log.records[45].physical_offset) == 2
    assert len(fs.list(DIRECTORY / "T" / "0")) == 3
    table.remove(table.pop_expired(len(table.expired)))
    assert len(fs.list(DIRECTORY / "T" / "0")) == 1
    big, small = table.find("T", 0), table.find("T", 1)
    assert big is not None
    assert small is not None
    assert (big.min_queue_offset, big.max_queue_offset, big.file_count) == (36, 40, 1)
    assert (small.min_queue_offset, small.max_queue_offset, small.file_count) == (9, 10, 1)


class StuckFs(MemoryFs):
    """A disk that makes no mapped file before it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_create = threading.Event()

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> MemoryMappedFile:
        assert self.may_create.wait(LIMIT_S)
        return super().create_mapped(path, size_bytes, reserved_bytes=reserved_bytes, is_durable=is_durable)


async def test_new_queues_do_not_hold_up_the_loop() -> None:
    """While a disk is slow to make the files of new queues, the event loop continues; the queues appear once made."""
    fs, log = StuckFs(), FakeLog()
    table = make_table(fs)
    for queue_id in range(3):
        log.append("T", queue_id)
    (batch,) = log.batches()
    preparing = asyncio.create_task(table.prepare(batch))
    await asyncio.sleep(0)
    assert table.sums.queue_count == 0
    assert not preparing.done()
    fs.may_create.set()
    await preparing
    assert ends(table) == {("T", queue_id): 0 for queue_id in range(3)}
    feed(table, log)
    assert ends(table) == {("T", queue_id): 1 for queue_id in range(3)}


class HalfFullFs(StuckFs):
    """A disk without room for a queue, and slow with the others."""

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> MemoryMappedFile:
        if path.parent.name == "0":
            raise DiskFull(path, needed_bytes=size_bytes)
        return super().create_mapped(path, size_bytes, reserved_bytes=reserved_bytes, is_durable=is_durable)


async def test_an_attempt_that_fails_has_ended_before_the_next() -> None:
    """A failed attempt ends all its threads before the next attempt.

    Otherwise a thread would remove the file that the next attempt has made.
    """
    fs, log = HalfFullFs(), FakeLog()
    table = make_table(fs)
    for queue_id in range(3):
        log.append("T", queue_id)
    (batch,) = log.batches()
    preparing = asyncio.create_task(table.prepare(batch))
    await asyncio.sleep(0.05)
    assert not preparing.done()
    fs.may_create.set()
    with pytest.raises(StoreFull):
        await preparing
    assert ends(table) == {("T", 1): 0, ("T", 2): 0}


async def test_a_prepared_queue_may_begin_anywhere() -> None:
    """A prepared queue whose first messages were deleted begins at its own offset."""
    fs, log = MemoryFs(), FakeLog()
    for _ in range(40):
        log.append("T", 0)
    (batch,) = log.batches(log.records[25].physical_offset)
    table = make_table(fs)
    table.min_physical_offset = log.records[25].physical_offset
    await table.prepare(batch)
    table.append(batch)
    queue = table.find("T", 0)
    assert queue is not None
    assert (queue.min_queue_offset, queue.max_queue_offset) == (25, 40)


async def test_a_prepared_queue_without_a_message_is_none_after_a_restart() -> None:
    """After a crash between the file and its first unit the queue does not exist.

    The replay makes it as usual.
    """
    fs, log = MemoryFs(), FakeLog()
    log.append("T", 0)
    (batch,) = log.batches()
    await make_table(fs).prepare(batch)
    table = make_table(fs)
    assert ends(table) == {}
    feed(table, log)
    assert ends(table) == {("T", 0): 1}


async def test_a_disk_without_room_for_a_directory_is_full() -> None:
    """A disk without room for a directory raises StoreFull, as without room for a file; ext4 needs a block for each."""
    fs, log = FaultyFs(MemoryFs()), FakeLog()
    table = make_table(fs)
    log.append("T", 0)
    log.append("U", 0)
    fs.plan = lambda operation, path: Fault(errno.ENOSPC) if (operation, path.name) == ("make_directory", "0") else None
    (batch,) = log.batches()
    with pytest.raises(StoreFull):
        await table.prepare(batch)
    fs.plan = no_faults
    await table.prepare(batch)
    assert ends(table) == {("T", 0): 0, ("U", 0): 0}


class CountingFs(MemoryFs):
    """Notes which directories are synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)
        super().sync_directory(path)


class HookedFs(MemoryFs):
    """A disk that calls a function before it creates a file."""

    def __init__(self) -> None:
        super().__init__()
        self.before_create: Callable[[], None] = lambda: None

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> MemoryMappedFile:
        """See `Fs.create_mapped`."""
        self.before_create()
        return super().create_mapped(path, size_bytes, reserved_bytes=reserved_bytes, is_durable=is_durable)


async def test_new_queues_wait_for_no_disk() -> None:
    """New queues need no sync; their names are synced later, each directory once for any number of queues."""
    fs, log = CountingFs(), FakeLog()
    table = make_table(fs)
    for number in range(12):
        log.append(f"T{number // 4}", number % 4)
    (batch,) = log.batches()
    fs.synced.clear()
    await table.prepare(batch)
    table.append(batch)
    assert fs.synced == []
    table.together.sync_names(table.unsynced.take_new())
    assert len(fs.synced) == len(set(fs.synced)) == 12 + 3 + 1
    for queue in table.begin_sync(0):
        queue.sync()
    fs.crash()
    assert ends(make_table(fs, bound=log.end_physical_offset)) == {
        (f"T{number // 4}", number % 4): 1 for number in range(12)
    }
    assert table.unsynced.take_new() == []


async def test_a_flush_while_a_file_is_created() -> None:
    """A queue that lost all its units gets a new file, whose name is durable although a flush ran before it existed."""
    fs, log = HookedFs(), FakeLog()
    log.append("T", 0)
    feed(make_table(fs), log)
    table = make_table(fs)
    table.truncate(0)
    (batch,) = log.batches()
    fs.before_create = lambda: table.together.sync_names(table.unsynced.take_new())
    await table.prepare(batch)
    table.append(batch)
    for queue in table.begin_sync(0):
        queue.sync()
    table.together.sync_names(table.unsynced.take_new())
    fs.crash()
    assert ends(make_table(fs, bound=log.end_physical_offset)) == {("T", 0): 1}


async def test_names_that_can_not_be_synced() -> None:
    """A failed sync of a directory is a failed sync: the process ends as after any other."""
    fs, log = FaultyFs(MemoryFs()), FakeLog()
    table = make_table(fs)
    log.append("T", 0)
    (batch,) = log.batches()
    await table.prepare(batch)
    table.append(batch)
    fs.plan = lambda operation, path: Fault(errno.EIO) if (operation, path.name) == ("sync_directory", "T") else None
    with pytest.raises(SyncFailed, match="T: sync up to byte 0 failed"):
        table.together.sync_names(table.unsynced.take_new())


async def test_a_new_queue_may_fill_files_before_its_first_sync() -> None:
    """A power cut that keeps names and loses pages leaves no empty file before another, which no start accepts."""
    fs, log = MemoryFs(), FakeLog()
    for _ in range(40):
        log.append("T", 0)
    (batch,) = log.batches()
    table = make_table(fs)
    await table.prepare(batch)
    table.append(batch)
    fs.crash(lambda _, page: page is None)
    table = make_table(fs)
    assert ends(table) == {}
    feed(table, log)
    assert ends(table) == {("T", 0): 40}
