# SPDX-License-Identifier: Apache-2.0
"""Topics that RocketMQ keeps in other ways: files untouched, records stepped over, everything else served."""

from pathlib import Path

import pytest

from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.indexes import consume_queue_ext
from libs.formats.indexes.consume_queue import tags_code
from libs.formats.names import is_group
from libs.formats.records.message_id import encode_offset_id
from libs.formats.records.record import INNER_BATCH_FLAG
from libs.formats.state.index_progress import StepReason
from libs.formats.state.set_apart import BATCH_QUEUE, COMPACTED, LIGHT_QUEUE
from libs.log.state import topics_file
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import TopicSetApart
from services.indexer.engine.answer.pull import PullQuery, PullStatus
from services.indexer.engine.answer.query import KeyQuery
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.follow.indexes import Reached
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from tests.support import reference
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, SMALL, running
from tests.support.patience import eventually

QUEUES = DATA_DIR / "consumequeue"
FOREIGN = (
    QUEUES / "%LMQ%a" / "0",
    QUEUES / "%LMQ%a.b$c" / "0",
    QUEUES / "keyed" / "0",
    DATA_DIR / "batchconsumequeue" / "batches" / "0",
    DATA_DIR / "compaction" / "compactionLog" / "keyed" / "0",
    DATA_DIR / "consumequeue_ext" / "plain" / "0",
    DATA_DIR / "timerlog",
)
"""Directories of RocketMQ in which nothing may change."""


def rocketmq_disk(*, has_topics: bool = True) -> MemoryFs:
    """A directory that RocketMQ has used, with each of its own kinds of files, and a queue of Reput's."""
    fs = MemoryFs()
    for directory in (*FOREIGN, QUEUES / "plain" / "0", DATA_DIR / "config"):
        fs.make_directory(directory)
    for directory in FOREIGN:
        fs.write_atomic(directory / f"{0:020d}", b"RocketMQ's" * 32)
    if has_topics:
        batches = TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"})
        keyed = TopicConfig("keyed", 1, 1, attributes={"cleanup.policy": "COMPACTION"})
        topics_file.save(fs, DATA_DIR, TopicsFile({"batches": batches, "keyed": keyed}))
    return fs


def foreign_files(fs: MemoryFs) -> dict[Path, bytes]:
    """The files that must stay."""
    return {directory / name: fs.read(directory / name) for directory in FOREIGN for name in fs.list(directory)}


def mixed_log() -> FakeLog:
    """Records of all kinds in turn; the queue offsets of batches count their messages."""
    log = FakeLog()
    for number in range(4):
        log.append("plain", tag="t", keys="k")
        log.append("keyed", keys="k")
        log.append("batches", keys="k", queue_offset=4 * number, sys_flag=INNER_BATCH_FLAG)
        log.append("batches", keys="k", queue_offset=4 * number + 3)
        log.append("gone", keys="k", queue_offset=5 * number, sys_flag=INNER_BATCH_FLAG)
    return log


async def settled(indexer: Indexer, log: FakeLog) -> None:
    """Wait until all of the log is indexed."""
    await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)


@pytest.mark.parametrize("has_topics", [True, False])
async def test_files_stay_and_records_are_stepped_over(has_topics: bool) -> None:
    """At the first start, a rebuild, a removal and a start after a kill the files stay and records are stepped over.

    All other records are served, each once.
    """
    log, fs = mixed_log(), rocketmq_disk(has_topics=has_topics)
    before = foreign_files(fs)
    expected = [("keyed", 4), ("batches", 8), ("gone", 4)]
    async with running(log, fs) as indexer:
        await settled(indexer, log)
        assert foreign_files(fs) == before
        notes = indexer.indexes.queues.stepped_over.notes()
        assert [(note.topic, note.record_count) for note in notes] == expected
        assert {note.reason for note in notes} == {StepReason.SET_APART}
        assert notes[0].first_physical_offset == log.records[1].physical_offset
        indexer.follow.states.request_rebuild()
        log.append("plain")
        await settled(indexer, log)
        await eventually(lambda: indexer.follow.completeness.is_complete)
        await indexer.upkeep.removal.remove_unused(dry_run=False)
        await indexer.upkeep.removal.remove_expired(dry_run=False)
        assert foreign_files(fs) == before
    fs.remove(DATA_DIR / "reput" / "index_progress")  # as if it had never run in order: all is built anew
    async with running(log, fs) as indexer:
        await settled(indexer, log)
        assert foreign_files(fs) == before
        assert indexer.indexes.queues.topics() == ["plain"]
        queue = indexer.indexes.queues.find("plain", 0)
        assert queue is not None
        assert queue.max_queue_offset == 5
        assert [(note.topic, note.record_count) for note in indexer.indexes.queues.stepped_over.notes()] == expected
        assert log.failures == []


async def test_a_batch_that_is_entered_in_part() -> None:
    """Records before a record that can't be entered keep their notes."""
    log, fs = mixed_log(), rocketmq_disk(has_topics=False)
    log.append("plain", keys=" ".join(f"k{number}" for number in range(SMALL.index_entry_capacity)))
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.follow.reput.state is ReputState.STOPPED)
        assert indexer.indexes.reached.indexed_physical_offset == log.records[-1].physical_offset
        assert indexer.indexes.queues.topics() == ["plain"]
        assert [(note.topic, note.record_count) for note in indexer.indexes.queues.stepped_over.notes()][-1] == (
            "gone",
            4,
        )


async def test_refusals() -> None:
    """A set-apart topic has a reason of its own, by topic and by id; its keys are in the index all the same."""
    log, fs = mixed_log(), rocketmq_disk()
    async with running(log, fs) as indexer:
        await settled(indexer, log)
        for topic, why in (("batches", BATCH_QUEUE), ("keyed", COMPACTED), ("%LMQ%a", LIGHT_QUEUE)):
            with pytest.raises(TopicSetApart) as caught:
                indexer.answers.served(topic, "topics[1]")
            assert (caught.value.topic, caught.value.why, caught.value.field) == (topic, why, "topics[1]")
        assert indexer.answers.served("plain") == "plain"
        kept, batch, gone = (log.records[index] for index in (1, 2, 4))
        for apart in (kept, batch, gone):
            with pytest.raises(TopicSetApart):
                await indexer.answers.queries.by_offset_id(encode_offset_id(apart.store_host, apart.physical_offset))
        page = await indexer.answers.queries.by_key(KeyQuery("gone", "k"), page_size=9, page_token="")
        assert len(page.found.sizes) == 0
        page = await indexer.answers.queries.by_key(KeyQuery("keyed", "k"), page_size=9, page_token="")
        assert len(page.found.sizes) == 4


async def test_an_indexer_elsewhere_hears_of_it() -> None:
    """Without topics.json the handshake names set-apart topics, also that a topic is set apart no more."""
    log, fs = mixed_log(), MemoryFs()
    log.set_apart = {"batches": BATCH_QUEUE, "keyed": COMPACTED}
    async with running(log, fs) as indexer:
        await settled(indexer, log)
        assert indexer.indexes.queues.topics() == ["plain"]
        with pytest.raises(TopicSetApart):
            indexer.answers.served("keyed")
        log.set_apart = {}
        log.go_down()
        await eventually(lambda: indexer.follow.states.log_away)
        log.is_up = True
        await eventually(lambda: not indexer.indexes.queues.set_apart.reasons)
        assert indexer.answers.served("keyed") == "keyed"


def extended(fs: MemoryFs, topic: str, queue_id: int, unit: int) -> None:
    """Have a unit lead to RocketMQ's extension, as it writes them with enableConsumeQueueExt."""
    path = QUEUES / topic / str(queue_id) / f"{0:020d}"
    data = bytearray(fs.read(path))
    data[20 * unit + 12 : 20 * unit + 20] = reference.extension_address(20 * unit).to_bytes(8, "big", signed=True)
    fs.write_atomic(path, bytes(data))


async def test_units_with_extensions() -> None:
    """A unit with an extension works as a unit with the tag's hash, for filters and in a replay."""
    log, fs = FakeLog(), MemoryFs()
    for tag in ("a", "b", "a"):
        log.append("T", tag=tag)
    async with running(log, fs) as indexer:
        await settled(indexer, log)
    for unit in (0, 1):
        extended(fs, "T", 0, unit)
    async with running(log, fs) as indexer:
        indexer.indexes.reached = Reached(0, log.end_physical_offset, log.epoch)
        for batch in log.batches(0):
            indexer.indexes.apply(batch)  # again
        tags = parse_tag_expression("a", field="tag_expression")
        query = PullQuery("T", 0, 0, message_count_max=9, size_bytes_max=1 << 20, tags=tags)
        result = await indexer.answers.puller.pull(query, wait_s=0)
        assert result.status is PullStatus.FOUND
        assert [view.tag for view in result.found.views()] == [b"a", b"a"]
    assert log.failures == []


async def test_retry_topics_of_pop_consumers() -> None:
    """Retry topics of pop consumers are indexed, although their names have a character that no other name has."""
    log = FakeLog()
    log.append("%RETRY%group+plain")
    async with running(log) as indexer:
        await settled(indexer, log)
        assert indexer.indexes.queues.topics() == ["%RETRY%group+plain"]
    assert not is_group("group+plain")


def test_hash_and_address_never_meet() -> None:
    """The smallest hash is above every address, so a single comparison distinguishes them."""
    assert tags_code("polygenelubricants") == -(2**31) > consume_queue_ext.ADDRESS_MAX
