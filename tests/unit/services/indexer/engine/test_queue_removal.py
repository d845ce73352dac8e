# SPDX-License-Identifier: Apache-2.0
"""Removal of expired queues and of unused topics: removed queues, kept queues, and later messages."""

import asyncio
import contextlib
import errno
import random

import pytest

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.log_history import QueueEnd
from libs.machine.failpoints import FailpointRaised, armed
from libs.machine.testing.faulty_fs import Fault, FaultyFs, by_ordinal
from libs.machine.testing.memory_fs import MemoryFs, PowerCut, Survives, everything_survives, nothing_survives
from libs.requests.errors import DependencyUnavailable, Stopping
from services.indexer.engine.answer.pull import PullStatus
from services.indexer.engine.follow.queue_end_report import PAGE_QUEUE_COUNT
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.upkeep.queue_removal import STEP_TOPIC_COUNT, RemovedQueues
from services.indexer.errors import Incomplete
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, feed, files, make_indexer, removed_names, running
from tests.support.patience import eventually
from tests.unit.services.indexer.engine.test_log_history import checked, ends_of, first_of, grown
from tests.unit.services.indexer.engine.test_pull import query

QUEUES = DATA_DIR / "consumequeue"


async def trimmed(indexer: Indexer, log: FakeLog, topic: str) -> None:
    """Delete the log below a topic's first record, and wait until the Indexer knows of it."""
    log.trim(first_of(log, topic))
    await eventually(lambda: indexer.indexes.queues.min_physical_offset == log.min_physical_offset)


async def test_a_queue_without_records_goes() -> None:
    """A queue without records is removed with its files and directories.

    A dry run returns the same and changes nothing; a second removal finds nothing.
    """
    log, fs = grown(40, 3, 2), MemoryFs()
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        await trimmed(indexer, log, "C")
        before = files(fs, QUEUES)
        told = await indexer.upkeep.removal.remove_expired(dry_run=True)
        assert files(fs, QUEUES) == before
        removed = await indexer.upkeep.removal.remove_expired(dry_run=False)
        assert removed == told
        last_of_a = max(found.physical_offset for found in log.records if found.topic == "A")
        assert removed.ends[0] == QueueEnd("A", 0, 40, last_of_a)
        assert removed_names(removed) == [("A", 0), ("B", 0)]
        assert removed.file_count == 3 + 1
        assert indexer.indexes.queues.topics() == fs.list(QUEUES) == ["C"]
        assert indexer.indexes.queues.sums.queue_count == 1
        assert indexer.upkeep.removal.removed_queue_count == 2
        assert await indexer.upkeep.removal.remove_expired(dry_run=False) == RemovedQueues([], 0, 0)


async def test_what_still_has_a_record_stays() -> None:
    """A single record keeps its queue, while another queue of the same topic is removed.

    Queues of delayed messages always stay.
    """
    log, fs = FakeLog(), MemoryFs()
    for topic, queue_id in (("A", 0), ("A", 1), (SCHEDULE_TOPIC, 2), ("B", 0), ("A", 0)):
        log.append(topic, queue_id)
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        await trimmed(indexer, log, "B")
        assert removed_names(await indexer.upkeep.removal.remove_expired(dry_run=False)) == [("A", 1)]
        assert indexer.indexes.queues.queue_ids("A") == [0]
        assert indexer.indexes.queues.queue_ids(SCHEDULE_TOPIC) == [2]
        assert fs.list(QUEUES / "A") == ["0"]


async def test_files_that_wait_for_their_removal_go_with_their_queue() -> None:
    """Files that a trim has given up and FlushLoop has not removed yet are not removed twice."""
    log, fs = grown(40, 1), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    log.trim(first_of(log, "B"))
    assert indexer.upkeep.trim.trim(log.min_physical_offset).queue_file_count == 2
    assert removed_names(await indexer.upkeep.removal.remove_expired(dry_run=False)) == [("A", 0)]
    assert fs.list(QUEUES) == ["B"]
    await indexer.close()


async def test_a_later_message_begins_the_queue_anew() -> None:
    """A later message begins the queue at the queue offset of the log.

    A reader at the old end finds it there, also after a restart.
    """
    log, fs = grown(40, 1), MemoryFs()
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        await trimmed(indexer, log, "B")
        await indexer.upkeep.removal.remove_expired(dry_run=False)
        gone = await indexer.answers.puller.pull(query(40, topic="A"), wait_s=0)
        assert gone.status is PullStatus.NO_MATCHED_LOGIC_QUEUE
        waiting = asyncio.create_task(indexer.answers.puller.pull(query(0, topic="A"), wait_s=30))
        await asyncio.sleep(0.01)
        made = log.append("A", 0)
        assert made.queue_offset == 40
        assert (await waiting).status is PullStatus.OFFSET_TOO_SMALL
        assert (await waiting).next_queue_offset == 40
    async with running(log, fs) as indexer:
        await checked(indexer, log, 2)
        found = await indexer.answers.puller.pull(query(40, topic="A"), wait_s=0)
        assert found.status is PullStatus.FOUND
        queue = indexer.indexes.queues.find("A", 0)
        assert queue is not None
        assert (queue.min_queue_offset, queue.max_queue_offset) == (40, 41)


async def test_topics_that_the_log_does_not_know_go() -> None:
    """Topics that the log does not know are removed although the log has their records.

    Topics of the system and light queues stay. A rebuild brings removed topics back.
    """
    log, fs = grown(3, 4, 2), MemoryFs()
    log.append(SCHEDULE_TOPIC, 1)
    log.append("rmq_sys_TRACE", 0)
    log.append("B", 7)
    log.deleted_topics = {"B", SCHEDULE_TOPIC, "rmq_sys_TRACE"}
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        assert removed_names(await indexer.upkeep.removal.remove_unused(dry_run=True)) == [("B", 0), ("B", 7)]
        assert indexer.indexes.queues.queue_ids("B") == [0, 7]
        assert removed_names(await indexer.upkeep.removal.remove_unused(dry_run=False)) == [("B", 0), ("B", 7)]
        assert indexer.indexes.queues.topics() == ["A", "C", SCHEDULE_TOPIC, "rmq_sys_TRACE"]
        assert "B" not in fs.list(QUEUES)
        log.deleted_topics = set()
        made = log.append("B", 0)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        queue = indexer.indexes.queues.find("B", 0)
        assert queue is not None
        assert (queue.min_queue_offset, queue.max_queue_offset) == (made.queue_offset, made.queue_offset + 1) == (4, 5)
        indexer.upkeep.rebuild.begin()
        await eventually(lambda: not indexer.upkeep.rebuild.is_running)
        queue = indexer.indexes.queues.find("B", 0)
        assert queue is not None
        assert (queue.min_queue_offset, queue.max_queue_offset) == (0, 5)


async def test_a_log_that_cannot_be_asked() -> None:
    """If the log cannot be asked for its topics, nothing is removed."""
    log, fs = grown(3, 4), MemoryFs()
    log.deleted_topics = {"B"}
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        log.go_down()
        with pytest.raises(DependencyUnavailable):
            await indexer.upkeep.removal.remove_unused(dry_run=False)
        assert indexer.indexes.queues.topics() == ["A", "B"]
        log.is_up = True


async def test_incomplete_indexes_and_a_stop_refuse() -> None:
    """A removal is refused while the indexes are incomplete, and after a clean stop."""
    log, fs = grown(3, 4), MemoryFs()
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        indexer.upkeep.rebuild.begin()
        with pytest.raises(Incomplete):
            await indexer.upkeep.removal.remove_expired(dry_run=False)
        await eventually(lambda: not indexer.upkeep.rebuild.is_running)
    with pytest.raises(Stopping):
        await indexer.upkeep.removal.remove_expired(dry_run=False)


async def test_the_log_still_hears_of_their_ends() -> None:
    """The log is still told the ends, so that it assigns no queue offset twice if it loses its counters."""
    log, fs = grown(7, 4, 3), MemoryFs()
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        await trimmed(indexer, log, "C")
        await indexer.upkeep.removal.remove_expired(dry_run=False)
    async with running(log, fs) as indexer:
        await checked(indexer, log, 2)
        assert ends_of(log) == {"A": 7, "B": 4, "C": 3}


async def test_many_topics() -> None:
    """More topics than a turn has are all removed, with the topics of the last turn."""
    log = FakeLog()
    topics = [f"t{number:03}" for number in range(3 * STEP_TOPIC_COUNT + 1)]
    for topic in [*topics, "z"]:
        log.append(topic, 0)
    async with running(log) as indexer:
        await checked(indexer, log)
        await trimmed(indexer, log, "z")
        assert [
            topic for topic, _ in removed_names(await indexer.upkeep.removal.remove_expired(dry_run=False))
        ] == topics
        assert indexer.indexes.queues.topics() == ["z"]


@pytest.mark.parametrize("survival", [nothing_survives, everything_survives], ids=["power cut", "kill"])
@pytest.mark.parametrize("point", ["removal.before_remove", "removal.after_remove", "progress.before_save", "never"])
async def test_a_crash_costs_no_rebuild(point: str, survival: Survives) -> None:
    """After a crash in a removal the start continues with the indexes, and the rest can be removed."""
    log, fs = grown(40, 3, 2), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    log.trim(first_of(log, "C"))
    indexer.upkeep.trim.trim(log.min_physical_offset)

    if point == "never":
        await indexer.upkeep.removal.remove_expired(dry_run=False)
    else:
        with armed(point, "raise"), pytest.raises(FailpointRaised):
            await indexer.upkeep.removal.remove_expired(dry_run=False)
    fs.crash(survival)
    log.follow_starts.clear()
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        assert log.follow_starts[0] == log.end_physical_offset
        assert ends_of(log) == {"A": 40, "B": 3, "C": 2}
        await indexer.upkeep.removal.remove_expired(dry_run=False)
        assert indexer.indexes.queues.topics() == ["C"]
        log.append("A", 0)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        assert indexer.follow.reput.state is not ReputState.STOPPED


@pytest.mark.parametrize("operation", ["remove", "remove_directory", "sync_directory"])
@pytest.mark.parametrize("number", range(1, 5))
async def test_a_disk_that_refuses_to_remove_ends_the_process(operation: str, number: int) -> None:
    """If the disk refuses a removal, the rest of the queue is whole at its end, and the next start accepts it."""
    log, memory = grown(40, 3, 2), MemoryFs()
    fs = FaultyFs(memory)
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    log.trim(first_of(log, "C"))
    indexer.indexes.queues.min_physical_offset = log.min_physical_offset
    fs.plan = by_ordinal({(operation, number): Fault(errno.EIO)})
    try:
        await indexer.upkeep.removal.remove_expired(dry_run=False)
    except OSError:
        was_begun = indexer.indexes.queues.topics() == ["C"]
        assert bool(log.failures) == was_begun == (indexer.follow.reput.state is ReputState.STOPPED)
    else:
        assert not log.failures
    memory.crash(everything_survives)
    log.follow_starts.clear()
    async with running(log, memory) as indexer:
        await checked(indexer, log)
        assert log.follow_starts[0] == log.end_physical_offset
        assert ends_of(log) == {"A": 40, "B": 3, "C": 2}
        await indexer.upkeep.removal.remove_expired(dry_run=False)
        assert all("/C/" in name for name in files(memory, QUEUES))  # directories without files may be left


@pytest.mark.parametrize("seed", range(20))
async def test_a_power_cut_between_the_files_of_a_queue(seed: int) -> None:
    """After a power cut the rest ends where the queue ended, so that the topic, created again, continues."""
    chance = random.Random(seed)
    log, memory = FakeLog(), MemoryFs()
    for _ in range(60):
        log.append("T", 0)
    fs = FaultyFs(memory)
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    log.deleted_topics = {"T"}
    fs.plan = lambda operation, path: (
        Fault(errno.EIO) if operation == "sync_directory" and path.name == "0" and chance.random() < 0.4 else None
    )
    with contextlib.suppress(OSError):
        await indexer.upkeep.removal.remove_unused(dry_run=False)
    cut = PowerCut(chance, page_ratio=0.5, name_ratio=0.5, torn_ratio=0)
    memory.crash(cut.survives, cut.tear)
    log.deleted_topics = set()
    log.follow_starts.clear()
    async with running(log, memory) as indexer:
        await checked(indexer, log)
        assert log.follow_starts[0] == log.end_physical_offset
        log.append("T", 0)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        queue = indexer.indexes.queues.find("T", 0)
        assert queue is not None
        assert queue.max_queue_offset == 61


@pytest.mark.parametrize("number", range(1, 5))
async def test_no_stop_is_clean_after_a_disk_error(number: int) -> None:
    """After a disk error in a removal the stop fails, and the next starts have the right sums and ends.

    A clean progress would name removed files, or lack existing files.
    """
    log, memory = grown(40, 3, 2), MemoryFs()
    fs = FaultyFs(memory)
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    log.trim(first_of(log, "C"))
    indexer.indexes.queues.min_physical_offset = log.min_physical_offset
    fs.plan = by_ordinal({("remove", number): Fault(errno.EIO)})
    with pytest.raises(OSError, match="Input/output"):
        await indexer.upkeep.removal.remove_expired(dry_run=False)
    with pytest.raises(OSError, match="Input/output"):
        await indexer.close()
    log.follow_starts.clear()
    for _ in range(2):
        async with running(log, memory) as indexer:
            await checked(indexer, log)
            assert log.follow_starts[0] == log.end_physical_offset
            assert ends_of(log) == {"A": 40, "B": 3, "C": 2}
            queues = [indexer.indexes.queues.find(topic, 0) for topic in indexer.indexes.queues.topics()]
            assert indexer.indexes.queues.sums.end == sum(
                queue.max_queue_offset for queue in queues if queue is not None
            )


async def test_a_removal_says_nothing_of_other_queues() -> None:
    """Records deleted before they were entered again make the history incomplete.

    A removal does not change that.
    """
    log, fs = FakeLog(), MemoryFs()
    log.append("A", 0)
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    for topic in "BBBTTTZ":
        log.append(topic, 0)
    feed(indexer, log)
    log.deleted_topics = {"T"}
    with armed("removal.after_remove", "raise"), pytest.raises(FailpointRaised):
        await indexer.upkeep.removal.remove_unused(dry_run=False)
    fs.crash(nothing_survives)
    log.trim(first_of(log, "T"))
    async with running(log, fs) as indexer:
        await checked(indexer, log)
    async with running(log, fs) as indexer:
        await checked(indexer, log, 2)
        assert not log.queue_checks[-1].is_complete


async def test_a_removal_while_the_log_is_told_of_the_ends() -> None:
    """Queues whose report is pending are reported although they are removed."""
    log = FakeLog()
    for queue_id in range(PAGE_QUEUE_COUNT + 100):
        log.append("A", queue_id)
    log.append("Z", 0)
    indexer = make_indexer(log)
    feed(indexer, log)
    log.trim(first_of(log, "Z"))
    indexer.indexes.queues.min_physical_offset = log.min_physical_offset
    pages = indexer.follow.reput.queue_ends.pages(log.min_physical_offset)
    told = await anext(pages)
    assert len((await indexer.upkeep.removal.remove_expired(dry_run=False)).ends) == PAGE_QUEUE_COUNT + 100
    told += [end async for page in pages for end in page]
    assert sorted((end.topic, end.queue_id) for end in told) == [
        *(("A", queue_id) for queue_id in range(PAGE_QUEUE_COUNT + 100)),
        ("Z", 0),
    ]


async def test_a_lost_tail_takes_the_end_of_a_removed_queue() -> None:
    """After a lost tail the history is incomplete, as the queue offsets of the earlier records are unknown."""
    log, fs = FakeLog(), MemoryFs()
    for topic in "TTTTA":
        log.append(topic, 0)
    end = log.end_physical_offset
    log.append("T", 0)
    async with running(log, fs) as indexer:
        await checked(indexer, log)
        log.deleted_topics = {"T"}
        await indexer.upkeep.removal.remove_unused(dry_run=False)
        log.lose_tail(end)
        await checked(indexer, log, 2)
        await eventually(lambda: indexer.indexes.reached.epoch == log.epoch)
    async with running(log, fs) as indexer:
        await checked(indexer, log, 3)
        assert not log.queue_checks[-1].is_complete


async def test_nobody_waits_while_the_log_is_asked() -> None:
    """Records are entered, and the service stops, while a question to the log waits for its answer."""
    log = grown(3, 4)
    async with running(log) as indexer:
        await checked(indexer, log)
        asked, answer = asyncio.Event(), asyncio.Event()
        has_topic = log.has_topic

        async def late(topic: str) -> bool:
            asked.set()
            await answer.wait()
            return await has_topic(topic)

        log.has_topic = late  # type: ignore[method-assign]
        removal = asyncio.create_task(indexer.upkeep.removal.remove_unused(dry_run=False))
        await asked.wait()
        log.append("A", 0)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        await indexer.follow.flush.flush(is_thorough=True)
        answer.set()
        assert (await removal).ends == []
