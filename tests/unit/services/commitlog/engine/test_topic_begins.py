# SPDX-License-Identifier: Apache-2.0
"""The offsets at which topics begin after a deletion or a purge: stored with it, kept, lowered, and copied."""

import asyncio

import pytest

from libs.formats import store_layout
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.log_history import TopicBeginsFile
from libs.log.state import small_files, topics_file
from libs.requests.errors import BadTopicName, TopicNotFound
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.errors import TopicForbidden
from tests.support.commitlog import DATA_DIR, Machine, append, fill, message
from tests.support.patience import LIMIT_S, eventually
from tests.support.replication import caught_up
from tests.unit.services.commitlog.engine.test_replication import two


def end_of(log: OpenLog) -> int:
    """The end of the log."""
    return log.chain.max_physical_offset


async def test_a_deletion_notes_the_end_of_the_log() -> None:
    """A deletion stores the log's end, and a later deletion replaces it.

    A topic that is created again keeps its begin, and a clean or unclean start loads it.
    """
    machine = Machine()
    log = await machine.start()
    await append(log, message(topic="orders"), message(topic="others"))
    await log.topic_changes.delete("orders")
    first = end_of(log)
    assert log.topics.begins.by_topic == {"orders": first}
    batch = await append(log, message(topic="orders"))
    assert batch.start_physical_offset == first
    assert log.topics.begins.by_topic == {"orders": first}
    await log.topic_changes.delete("orders")
    assert log.topics.begins.by_topic == {"orders": end_of(log)} != {"orders": first}
    kept = dict(log.topics.begins.by_topic)
    await machine.stop(log)
    log = await machine.start()
    assert log.topics.begins.by_topic == kept
    await machine.kill(log)
    async with machine.running() as log:
        assert log.topics.begins.by_topic == kept


async def test_a_topic_without_messages_leaves_nothing() -> None:
    """Topics without messages that are created and deleted leave no begin."""
    async with Machine().running() as log:
        await append(log, message(topic="others"))
        for number in range(3):
            name = f"empty{number}"
            await log.topics.create(name)
            await log.topic_changes.delete(name)
        assert log.topics.begins.by_topic == {}


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_deletion_that_a_crash_interrupted(*, is_deleted: bool) -> None:
    """An interrupted deletion is done if the topics file lacks the topic; otherwise the older begin counts."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(topic="orders"))
        first = end_of(log)
        await append(log, message(topic="orders"))
        end = end_of(log)
        topics = log.topics.file
    file = TopicBeginsFile(begins={"orders": first}, deleting="orders")
    small_files.save_topic_begins(machine.fs, DATA_DIR, file)
    if is_deleted:
        del topics.topics["orders"]
        topics_file.save(machine.fs, DATA_DIR, topics)
    async with machine.running() as log:
        assert log.topics.begins.by_topic == {"orders": end if is_deleted else first}
    assert small_files.load_topic_begins(machine.fs, DATA_DIR).deleting == ""


async def test_a_begin_behind_the_end_is_lowered() -> None:
    """After a lost tail the begin is lowered to the log's end.

    New messages there do not belong to the deleted topic.
    """
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(topic="orders"))
        end = end_of(log)
    small_files.save_topic_begins(machine.fs, DATA_DIR, TopicBeginsFile(begins={"orders": end + 1_000}))
    async with machine.running() as log:
        assert log.topics.begins.by_topic == {"orders": end}
        await append(log, message(topic="orders"))
    async with machine.running() as log:
        assert log.topics.begins.by_topic == {"orders": end}


async def test_a_begin_below_the_first_byte_is_forgotten() -> None:
    """A begin below the log's first byte is removed, because it hides no record."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 1)
        await log.topic_changes.delete("orders")
        await fill(log, 2)
        assert log.topics.begins.by_topic
        bases = [segment.base_physical_offset for segment in log.chain.segments[:-1]]
        await log.segments.delete(bases, allow_unindexed=True)
        await log.topics.create("others")
        await log.topic_changes.delete("others")
        assert log.topics.begins.by_topic == {}


async def test_a_damaged_file() -> None:
    """With a damaged file the log starts, messages of deleted topics are visible again, and the log says so."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(topic="orders"))
        await log.topic_changes.delete("orders")
    machine.fs.write_atomic(DATA_DIR / store_layout.TOPIC_BEGINS, b"?")
    async with machine.running() as log:
        assert log.topics.begins.by_topic == {}


async def test_a_copy_has_them() -> None:
    """A copy has the begins before a synchronous log answers, so that the messages stay hidden after a failover."""
    async with two() as (leader, follower, _, _, other):
        await append(leader, message(topic="orders"))
        await caught_up(follower, leader)
        await leader.topic_changes.delete("orders")
        begins = {"orders": end_of(leader)}
        await eventually(lambda: follower.topics.begins.by_topic == begins)
        await eventually(lambda: follower.topics.find("orders") is None)
        assert small_files.load_topic_begins(other.fs, DATA_DIR).begins == begins
        await append(leader, message(topic="orders"))
        await caught_up(follower, leader)
        assert follower.topics.begins.by_topic == begins


async def test_a_purge_notes_the_end_of_the_log() -> None:
    """A purged topic stays and its queue offsets continue; its begin is the log's end, also after each kind of start.

    A topic without a message has no begin.
    """
    machine = Machine()
    log = await machine.start()
    await append(log, message(topic="orders"), message(topic="others"))
    begin = end_of(log)
    assert await log.topic_changes.purge("orders") == begin
    await log.topics.create("empty")
    assert await log.topic_changes.purge("empty") == 0
    assert log.topics.begins.by_topic == {"orders": begin}
    assert log.topics.find("orders") is not None
    batch = await append(log, message(topic="orders"))
    assert (batch.start_physical_offset, batch.queue_offsets[0]) == (begin, 1)
    await machine.kill(log)
    async with machine.running() as log:
        assert log.topics.begins.by_topic == {"orders": begin}
        for name, error in (("unknown", TopicNotFound), (SCHEDULE_TOPIC, TopicForbidden), ("../x", BadTopicName)):
            with pytest.raises(error):
                await log.topic_changes.purge(name)


async def test_a_purge_wakes_the_streams_and_reaches_copies() -> None:
    """A stream to a reader yields at once after a purge, at the leader and at a copy that has it."""
    async with two() as (leader, follower, _, _, other):
        await append(leader, message(topic="orders"))
        await caught_up(follower, leader)
        tails = [
            log.followers.tail(start_physical_offset=end_of(log), record_count_max=8) for log in (leader, follower)
        ]
        waits = [asyncio.ensure_future(anext(tail.steps())) for tail in tails]
        begin = await leader.topic_changes.purge("orders")
        for step in await asyncio.wait_for(asyncio.gather(*waits), LIMIT_S):
            assert (step.start_physical_offset, step.columns, step.response) == (begin, None, b"")
        assert leader.topics.begins.by_topic == {"orders": begin}
        await eventually(lambda: follower.topics.begins.by_topic == {"orders": begin})
        assert small_files.load_topic_begins(other.fs, DATA_DIR).begins == {"orders": begin}


async def test_expired_messages_reach_copies_and_never_come_back() -> None:
    """A begin only rises, a topic that does not exist gets none, and a copy has rule and begin."""
    async with two() as (leader, follower, _, _, other):
        await append(leader, message(topic="orders"), message(topic="orders"))
        await caught_up(follower, leader)
        await leader.topic_changes.update("orders", retention_hours=5, retention_bytes=700)
        end = end_of(leader)
        assert await leader.topic_changes.expire({"orders": end, "unknown": end, SCHEDULE_TOPIC: end}) == 1
        assert await leader.topic_changes.expire({"orders": end - 1}) == 0
        assert leader.topics.begins.by_topic == {"orders": end}
        await eventually(lambda: follower.topics.begins.by_topic == {"orders": end})
        await eventually(lambda: bool(follower.topics.with_retention()))
        (topic,) = follower.topics.with_retention()
        assert (topic.name, topic.retention_hours, topic.retention_bytes) == ("orders", 5, 700)
        assert small_files.load_topic_begins(other.fs, DATA_DIR).begins == {"orders": end}
        await leader.topic_changes.update("orders", retention_hours=0, retention_bytes=0)
        assert leader.topics.with_retention() == []
