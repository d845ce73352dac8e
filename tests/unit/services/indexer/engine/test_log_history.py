# SPDX-License-Identifier: Apache-2.0
"""The queues that the Indexer reports to the log, its memory of dropped queues, and logs of another history."""

import contextlib
import errno
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from reput.indexer.v1.index_service_pb2 import TrimToRequest

from libs.formats.epoch import Epoch
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.state.log_history import QueueEnd
from libs.machine.testing.faulty_fs import Fault, FaultyFs
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, everything_survives
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.build import build
from services.indexer.engine.follow import queue_end_report
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.tables.queue_files import end_on_disk
from services.indexer.errors import NotARecord
from services.indexer.rpc.index_servicer import IndexServicer
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, SMALL, feed, files, make_indexer, running
from tests.support.patience import eventually

HISTORY_FILE = DATA_DIR / "reput" / "log_history"


def history(fs: MemoryFs) -> LogHistory:
    """The history in the file."""
    found = LogHistory(fs, HISTORY_FILE)
    found.load()
    return found


Step = Handshake | DispatchBatch | Heartbeat
PROGRESS_FILE = DATA_DIR / "reput" / "index_progress"


def grown(*counts: int) -> FakeLog:
    """A log with so many records of topics A, B and so on, topic after topic."""
    log = FakeLog()
    for topic, count in zip("ABCDEF", counts, strict=False):
        for _ in range(count):
            log.append(topic, 0)
    return log


def ends_of(log: FakeLog) -> dict[str, int]:
    """The ends of the last report to the log."""
    return {end.topic: end.end_queue_offset for end in log.queue_checks[-1].ends}


def first_of(log: FakeLog, topic: str) -> int:
    """Where the first record of a topic begins."""
    return next(found.physical_offset for found in log.records if found.topic == topic)


async def checked(indexer: Indexer, log: FakeLog, count: int = 1) -> None:
    """Wait until the log has so many reports, and everything is indexed."""
    await eventually(lambda: len(log.queue_checks) >= count and indexer.follow.reput.state is ReputState.LIVE)


async def test_the_log_hears_of_all_queues_after_each_handshake() -> None:
    """Each handshake is followed by a report with ends, last records, epoch and history."""
    log, fs = grown(3, 2), MemoryFs()
    async with running(log, fs) as indexer:
        await checked(indexer, log)
    async with running(log, fs) as indexer:
        await checked(indexer, log, 2)
        log.go_down()
        await eventually(lambda: indexer.follow.reput.state is ReputState.CONNECTING)
        log.is_up = True
        await checked(indexer, log, 3)
    last = {topic: max(r.physical_offset for r in log.records if r.topic == topic) for topic in "AB"}
    for check in log.queue_checks[1:]:
        assert sorted(check.ends, key=lambda end: end.topic) == [
            QueueEnd("A", 0, 3, last["A"]),
            QueueEnd("B", 0, 2, last["B"]),
        ]
        assert (check.epoch, check.history_id, check.is_complete) == (1, "first", True)
    assert log.reports[-1].history_id == "first"


async def test_many_queues_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has at most its limit of queues, and each queue is reported once."""
    monkeypatch.setattr(queue_end_report, "PAGE_QUEUE_COUNT", 100)
    log = FakeLog()
    for queue_id in range(201):
        log.append("T", queue_id)
    indexer = make_indexer(log)
    feed(indexer, log)
    report = indexer.follow.reput.queue_ends
    sizes: list[int] = []
    names: set[tuple[str, int]] = set()
    async for page in report.pages(0):
        sizes.append(len(page))
        names.update((end.topic, end.queue_id) for end in page)
    assert sizes == [100, 100, 1]
    assert len(names) == 201


async def test_an_indexer_that_came_too_late_says_so() -> None:
    """An Indexer that began after the log's first byte reports that it is incomplete, also after a restart."""
    log, fs = grown(3, 5), MemoryFs()
    log.trim(first_of(log, "B"))
    for number in (1, 2):
        async with running(log, fs) as indexer:
            await checked(indexer, log, number)
            assert not history(fs).is_complete
        assert not log.queue_checks[-1].is_complete or number == 1


async def test_a_gap_makes_it_incomplete() -> None:
    """Records that were deleted before they were indexed make the history incomplete.

    They may have been of any queue.
    """
    log, fs = grown(3, 5), MemoryFs()
    async with running(log, fs) as indexer:
        await checked(indexer, log)
    for _ in range(5):
        log.append("C", 0)
    log.append("A", 0)
    log.trim(log.records[-1].physical_offset)
    async with running(log, fs) as indexer:
        await checked(indexer, log, 2)
        assert not history(fs).is_complete


@pytest.mark.parametrize("loss", ["crash before any progress", "progress lost", "progress damaged", "rebuild"])
async def test_ends_of_spent_queues_outlive_a_rebuild(loss: str) -> None:
    """Queues without records can't be built again: their ends are kept, and reported to the log."""
    log, fs = grown(7, 4, 3), MemoryFs()
    if loss == "crash before any progress":  # as RocketMQ's files are
        indexer = make_indexer(log, fs)
        feed(indexer, log)
        fs.crash(everything_survives)
    else:
        async with running(log, fs) as indexer:
            await checked(indexer, log)
    log.trim(first_of(log, "C"))
    if loss == "progress lost":
        fs.remove(PROGRESS_FILE)
    elif loss == "progress damaged":
        fs.write_atomic(PROGRESS_FILE, b"?")
    told = len(log.queue_checks)
    async with running(log, fs) as indexer:
        if loss == "rebuild":
            await checked(indexer, log, told + 1)
            indexer.upkeep.rebuild.begin()
            await eventually(lambda: not indexer.upkeep.rebuild.is_running)
            told += 1
        await checked(indexer, log, told + 1)
        assert indexer.indexes.queues.topics() == ["C"]
        assert ends_of(log) == {"A": 7, "B": 4} | ({"C": 3} if "C" in ends_of(log) else {})
        assert log.queue_checks[-1].is_complete
    async with running(log, fs) as indexer:  # the ends are kept over further starts
        await checked(indexer, log, told + 2)
        assert ends_of(log) == {"A": 7, "B": 4, "C": 3}


async def test_an_end_that_the_log_still_has_is_not_taken_from_memory() -> None:
    """A kept end is not reported if the log still has its queue or lost its record."""
    log, fs = grown(3, 2), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    fs.crash(everything_survives)
    log.lose_tail(first_of(log, "B"))
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        log.append("A", 0)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    async with running(log, fs) as indexer:
        await checked(indexer, log, 2)
        assert ends_of(log) == {"A": 4}


async def test_the_end_of_a_lost_tail_is_forgotten_before_the_log_goes_on() -> None:
    """The end of a lost tail is removed before the log continues.

    The log writes other records at its place, and deletes them: then the end must not pass for the queue's end.
    """
    log, fs = grown(3, 2), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    fs.crash(everything_survives)
    log.lose_tail(first_of(log, "B"))
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        for topic in "ACCCD":
            log.append(topic, 0)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    log.trim(first_of(log, "D"))
    async with running(log, fs) as indexer:
        await checked(indexer, log, 2)
        assert ends_of(log) == {"A": 4, "C": 3, "D": 1}


def test_ends_of_files_in_any_state() -> None:
    """The last valid unit counts, with damaged and cut files."""
    log, fs = grown(40), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    directory = DATA_DIR / "consumequeue" / "A" / "0"
    names = fs.list(directory)
    assert len(names) == 3
    last = log.records[-1].physical_offset
    assert end_on_disk(fs, directory, topic="A", queue_id=0) == QueueEnd("A", 0, 40, last)
    fs.file(directory / names[-1]).data[0:60] = bytes(60)
    assert end_on_disk(fs, directory, topic="A", queue_id=0) == QueueEnd("A", 0, 40, last)
    fs.remove(directory / names[0])
    fs.file(directory / names[-1]).data[:] = bytes(320)
    assert end_on_disk(fs, directory, topic="A", queue_id=0) == QueueEnd("A", 0, 32, log.records[31].physical_offset)
    fs.append(directory / "notes", b"x")
    fs.file(directory / names[1]).data[:] = bytes(320)
    assert end_on_disk(fs, directory, topic="A", queue_id=0) is None


async def test_ends_are_kept_before_files_go() -> None:
    """If the ends can't be stored, no file is removed, and the start fails."""
    log, fs = grown(3), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    fs.crash(everything_survives)
    before = files(fs, DATA_DIR / "consumequeue")

    def plan(operation: str, path: Path) -> Fault | None:
        return Fault(errno.EIO) if (operation, path) == ("write_atomic", HISTORY_FILE) else None

    refused = build(SMALL, FaultyFs(fs, plan), ManualClock(), source=log, records=log, on_failure=lambda _: None)
    with pytest.raises(OSError, match="Input/output"):
        refused.open()
    assert files(fs, DATA_DIR / "consumequeue") == before


async def test_indexes_of_another_log_stay_until_somebody_says_so() -> None:
    """Indexes of another log stay until an operator decides, and no call is answered.

    Epoch and offsets may be equal; the name of the history differs.
    """
    mine, other, fs = grown(6, 2), FakeLog(), MemoryFs()
    for _ in range(30):
        other.append("X", 0)
    async with running(mine, fs) as indexer:
        await checked(indexer, mine)
    other.history_id = "second"
    before = files(fs, DATA_DIR / "consumequeue")
    async with running(other, fs) as indexer:
        await eventually(lambda: indexer.follow.reput.state is ReputState.OTHER_LOG)
        assert not indexer.follow.completeness.is_complete
        assert "is the disk of the CommitLog's data_dir mounted" in indexer.follow.states.last_error
        with pytest.raises(DependencyUnavailable, match="is the disk of the CommitLog's data_dir mounted"):
            indexer.follow.reput.check_same_log()
        with pytest.raises(DependencyUnavailable):
            await IndexServicer(indexer, start_time_ms=0).TrimTo(TrimToRequest(min_physical_offset=10), None)
    assert files(fs, DATA_DIR / "consumequeue") == before
    async with running(mine, fs) as indexer:
        await checked(indexer, mine, 2)
        assert indexer.follow.completeness.is_complete
        assert indexer.indexes.applied_record_count == 0
    async with running(other, fs) as indexer:
        await eventually(lambda: indexer.follow.reput.state is ReputState.OTHER_LOG)
        indexer.follow.states.request_rebuild()
        await checked(indexer, other)
        assert indexer.indexes.queues.topics() == ["X"]
        queue = indexer.indexes.queues.find("X", 0)
        assert queue is not None
        assert queue.max_queue_offset == 30
        assert ends_of(other).get("A") is None
    built = MemoryFs()
    async with running(other, built) as indexer:
        await checked(indexer, other, 2)
    assert files(fs, DATA_DIR / "consumequeue") == files(built, DATA_DIR / "consumequeue")


async def test_a_log_without_a_name_is_taken_by_its_epoch() -> None:
    """A log that lost its name keeps its indexes, and so does a log that gets its first name."""
    log, fs = grown(6), MemoryFs()
    for name, expected in (("", ""), ("first", "first"), ("", "first")):
        log.history_id = name
        async with running(log, fs) as indexer:
            await checked(indexer, log)
            await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
            assert indexer.follow.flush.report().history_id == expected
            assert indexer.indexes.applied_record_count in (0, 6)
    assert log.follow_starts[-1] == log.end_physical_offset


@pytest.mark.parametrize("history_id", ["first", "second", ""])
async def test_a_log_without_a_record_where_the_indexes_end(history_id: str) -> None:
    """If the log has no record at the indexes' end, an operator decides, and the indexes stay."""

    class Other(FakeLog):
        async def follow(
            self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
        ) -> AsyncGenerator[Step, None]:
            if start_physical_offset > 0:
                raise NotARecord(start_physical_offset)
            async with contextlib.aclosing(super().follow(start_physical_offset, epoch, epochs)) as steps:
                async for step in steps:
                    yield step

    fs, log = MemoryFs(), Other()
    log.history_id = history_id
    log.append("X", 0)
    async with running(grown(5), fs) as indexer:
        await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
    async with running(log, fs) as indexer:
        expected = ReputState.OTHER_LOG if history_id == "second" else ReputState.STOPPED
        await eventually(lambda: indexer.follow.reput.state is expected)
        assert indexer.indexes.queues.topics() == ["A"]
        assert ("the log has none there" in indexer.follow.states.last_error) is (history_id != "second")


def test_a_damaged_file_knows_nothing() -> None:
    """A damaged file means that the history is incomplete; this is reported, and the start succeeds."""
    fs = MemoryFs()
    fs.make_directory(HISTORY_FILE.parent)
    fs.write_atomic(HISTORY_FILE, b"?")
    history = LogHistory(fs, HISTORY_FILE)
    history.load()
    assert (history.history_id, history.is_complete) == ("", False)
