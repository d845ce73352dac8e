# SPDX-License-Identifier: Apache-2.0
"""An index disk full of queues is freed by deleting topics or by growing; no other topic loses a message."""

import numpy as np
import pytest

from libs.formats.state.index_progress import StepReason
from libs.machine.testing.memory_fs import MemoryFs, nothing_survives
from services.indexer.engine.answer.query import KeyQuery
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from services.indexer.errors import Incomplete
from tests.support.fake_log import FakeLog
from tests.support.indexer import make_indexer, running
from tests.support.patience import eventually
from tests.unit.services.indexer.engine.test_full_disk import PLENTY, WITH_BALLAST
from tests.unit.services.indexer.engine.test_log_history import first_of

QUEUE_FILE_BYTES = WITH_BALLAST.queue_file_size_bytes
WIDE_QUEUE_COUNT = 40


def append_others(log: FakeLog, count: int = 5) -> None:
    """Messages of topics that are not deleted; A has some already."""
    for number in range(count):
        log.append("A", 0, keys=f"a{number}")
        log.append("B", number % 2)


def append_wide(log: FakeLog, *, each: int = 1) -> None:
    """A message for each queue of a wide topic."""
    for number in range(WIDE_QUEUE_COUNT * each):
        log.append("wide", number % WIDE_QUEUE_COUNT, keys=f"w{number}")


async def filled(indexer: Indexer, log: FakeLog, fs: MemoryFs) -> None:
    """Have the wide topic meet a disk with room for half of its queues, and others wait behind it."""
    append_others(log)
    await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    await indexer.follow.flush.flush(is_thorough=True)
    fs.capacity_bytes = fs.used_bytes() + WIDE_QUEUE_COUNT // 2 * QUEUE_FILE_BYTES
    append_wide(log)
    append_others(log)
    await eventually(lambda: indexer.follow.reput.is_disk_full)


def assert_others_are_whole(indexer: Indexer, log: FakeLog) -> None:
    """Each message of other topics is in its queue, in order."""
    for topic, queue_id in (("A", 0), ("B", 0), ("B", 1)):
        mine = [one.physical_offset for one in log.records if (one.topic, one.queue_id) == (topic, queue_id)]
        queue = indexer.indexes.queues.find(topic, queue_id)
        assert queue is not None
        assert np.array_equal(queue.read(0, 1_000).physical_offsets, mine)


async def caught_up(indexer: Indexer, log: FakeLog) -> None:
    """Wait for the end of the log."""
    await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE and indexer.follow.completeness.is_complete)


async def test_deleting_the_topic_is_enough() -> None:
    """Records of the deleted topic are stepped over with notes by queue, and found by key.

    The topic has no file on the disk.
    """
    log, fs = FakeLog(), MemoryFs()
    async with running(log, fs, WITH_BALLAST) as indexer:
        await filled(indexer, log, fs)
        assert indexer.indexes.reached.indexed_physical_offset == first_of(log, "wide")
        log.deleted_topics = {"wide"}
        await caught_up(indexer, log)
        assert_others_are_whole(indexer, log)
        assert indexer.indexes.queues.topics() == ["A", "B"]
        notes = indexer.indexes.queues.stepped_over.notes()
        assert {(note.topic, note.reason, note.record_count) for note in notes} == {
            ("wide", StepReason.TOPIC_DELETED, 1)
        }
        assert len(notes) == WIDE_QUEUE_COUNT
        assert not indexer.follow.reput.is_disk_full
        page = await indexer.answers.queries.by_key(KeyQuery("wide", "w7"), page_size=9, page_token="")
        assert len(list(page.found.views())) == 1


async def test_a_larger_disk_is_enough() -> None:
    """On a larger disk every message of every topic is indexed."""
    log, fs = FakeLog(), MemoryFs()
    async with running(log, fs, WITH_BALLAST) as indexer:
        await filled(indexer, log, fs)
        fs.capacity_bytes = PLENTY
        await caught_up(indexer, log)
        assert_others_are_whole(indexer, log)
        assert len(indexer.indexes.queues.queue_ids("wide")) == WIDE_QUEUE_COUNT
        assert indexer.indexes.queues.stepped_over.notes() == []


async def killed(indexer: Indexer, fs: MemoryFs) -> None:
    """End the Indexer without any of its last steps."""
    await indexer.abandon()
    fs.crash(nothing_survives)


async def test_a_killed_indexer_comes_back_in_the_same_ways() -> None:
    """A killed Indexer continues after the same remedies.

    Its indexes are incomplete until it has passed the records without room.
    """
    log, fs = FakeLog(), MemoryFs()
    indexer = make_indexer(log, fs, WITH_BALLAST)
    indexer.start()
    await filled(indexer, log, fs)
    await killed(indexer, fs)
    async with running(log, fs, WITH_BALLAST) as indexer:
        await eventually(lambda: indexer.follow.reput.is_disk_full)
        assert not indexer.follow.completeness.is_complete
        log.deleted_topics = {"wide"}
        await caught_up(indexer, log)
        assert_others_are_whole(indexer, log)


async def test_queues_of_deleted_topics_may_go_while_nothing_fits() -> None:
    """Queues of a deleted topic are removed while other records wait for room on the full disk."""
    log, fs = FakeLog(), MemoryFs()
    append_wide(log)
    indexer = make_indexer(log, fs, WITH_BALLAST)
    indexer.start()
    await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    await indexer.follow.flush.flush(is_thorough=True)
    fs.capacity_bytes = fs.used_bytes() + QUEUE_FILE_BYTES
    append_others(log)
    await eventually(lambda: indexer.follow.reput.is_disk_full)
    await killed(indexer, fs)
    async with running(log, fs, WITH_BALLAST) as indexer:
        await eventually(lambda: indexer.follow.reput.is_disk_full)
        log.deleted_topics = {"wide"}
        with pytest.raises(Incomplete):
            await indexer.upkeep.removal.remove_expired(dry_run=False)
        removed = await indexer.upkeep.removal.remove_unused(dry_run=False)
        assert len(removed.ends) == WIDE_QUEUE_COUNT
        assert removed.freed_bytes == WIDE_QUEUE_COUNT * QUEUE_FILE_BYTES
        await caught_up(indexer, log)
        assert_others_are_whole(indexer, log)


async def test_a_topic_that_is_made_again_is_indexed() -> None:
    """A topic that is created again is indexed from its next message on; earlier messages had no room."""
    log, fs = FakeLog(), MemoryFs()
    async with running(log, fs, WITH_BALLAST) as indexer:
        await filled(indexer, log, fs)
        log.deleted_topics = {"wide"}
        await caught_up(indexer, log)
        append_wide(log)
        await caught_up(indexer, log)
        assert indexer.indexes.queues.topics() == ["A", "B"]
        fs.capacity_bytes = PLENTY
        log.deleted_topics = set()
        append_wide(log)
        await caught_up(indexer, log)
        for queue_id in range(WIDE_QUEUE_COUNT):
            queue = indexer.indexes.queues.find("wide", queue_id)
            assert queue is not None
            assert (queue.min_queue_offset, queue.max_queue_offset) == (2, 3)
        assert_others_are_whole(indexer, log)


async def test_nothing_is_left_out_while_there_is_room() -> None:
    """With room the queues of deleted topics are indexed, too, because their consumers may still run."""
    log, fs = FakeLog(), MemoryFs()
    log.deleted_topics = {"wide"}
    async with running(log, fs, WITH_BALLAST) as indexer:
        append_wide(log)
        append_others(log)
        await caught_up(indexer, log)
        assert len(indexer.indexes.queues.queue_ids("wide")) == WIDE_QUEUE_COUNT
        assert indexer.indexes.queues.stepped_over.notes() == []
