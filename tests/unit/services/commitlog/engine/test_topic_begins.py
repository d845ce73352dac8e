# SPDX-License-Identifier: Apache-2.0
"""Where the messages of topics begin that were deleted: noted with the deletion, kept, lowered, and given to copies."""

import pytest

from libs.formats import store_layout
from libs.formats.state.log_history import TopicBeginsFile
from libs.log.state import small_files, topics_file
from services.commitlog.engine.open_log import OpenLog
from tests.support.commitlog import DATA_DIR, Machine, append, fill, message
from tests.support.patience import eventually
from tests.support.replication import caught_up
from tests.unit.services.commitlog.engine.test_replication import two


def end_of(log: OpenLog) -> int:
    """The end of the log."""
    return log.chain.max_physical_offset


async def test_a_deletion_notes_the_end_of_the_log() -> None:
    """A later deletion counts; a topic that is made again keeps the begin; a start finds it, clean or not."""
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
    """Topics that are made and deleted over and over take no memory."""
    async with Machine().running() as log:
        await append(log, message(topic="others"))
        for number in range(3):
            name = f"empty{number}"
            await log.topics.create(name)
            await log.topic_changes.delete(name)
        assert log.topics.begins.by_topic == {}


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_deletion_that_a_crash_interrupted(*, is_deleted: bool) -> None:
    """It is done if the topic is gone from its file, with the messages; else the older begin counts as before."""
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
    """Where a tail is lost, messages that come in its place are no messages of the deleted topic."""
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
    """No record is left that it hides."""
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
    """The log starts: messages of deleted topics are to be had again, and a line says so."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(topic="orders"))
        await log.topic_changes.delete("orders")
    machine.fs.write_atomic(DATA_DIR / store_layout.TOPIC_BEGINS, b"?")
    async with machine.running() as log:
        assert log.topics.begins.by_topic == {}


async def test_a_copy_has_them() -> None:
    """Before a synchronous log answers, so that the messages stay away after a failover."""
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
