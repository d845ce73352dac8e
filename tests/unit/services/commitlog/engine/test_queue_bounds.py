# SPDX-License-Identifier: Apache-2.0
"""Bounds of queues: of a topic, of all topics, and of the queues that a batch begins."""

import pytest

from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.log.state import topics_file
from libs.requests.errors import BadArgument
from services.commitlog.errors import BatchTooLarge
from tests.support.commitlog import DATA_DIR, Machine, append, message
from tests.unit.services.commitlog.engine.test_topics import PATH, PLAIN, SAME


async def test_the_queues_of_a_topic_are_bounded() -> None:
    """A topic gets no more queues than the bound.

    A wider topic of RocketMQ keeps its queues and allows other changes.
    """
    machine = Machine(topic_queue_count_max=8)
    wide = TopicConfig("wide", read_queue_count=100, write_queue_count=100)
    machine.fs.make_directory(PATH.parent)
    topics_file.save(machine.fs, DATA_DIR, TopicsFile({"wide": wide}))
    async with machine.running() as log:
        await log.topics.create("narrow", **{**PLAIN, "read_queue_count": 8, "write_queue_count": 8})
        for field in ("read_queue_count", "write_queue_count"):
            with pytest.raises(BadArgument) as caught:
                await log.topics.create("other", **{**PLAIN, field: 9})
            assert (caught.value.field, caught.value.value, caught.value.limit) == (field, 9, 8)
            with pytest.raises(BadArgument) as caught:
                await log.topics.update("wide", **{**SAME, field: 101})
            assert (caught.value.field, caught.value.value, caught.value.limit) == (field, 101, 100)
        changed = await log.topics.update("wide", **{**SAME, "write_queue_count": 99, "is_readable": False})
        assert (changed.write_queue_count, changed.read_queue_count) == (99, 100)


async def test_the_queues_of_all_topics_are_bounded() -> None:
    """Created and widened topics count with their queues, deleted topics with the queues that had a message."""
    machine = Machine()
    async with machine.running() as log:
        limit = log.topics.table.queue_count + 10
    async with machine.running(queue_count_max=limit) as log:
        await log.topics.create("a", **{**PLAIN, "write_queue_count": 6})
        for refused in (
            log.topics.create("b", **{**PLAIN, "write_queue_count": 5}),
            log.topics.update("a", **{**SAME, "write_queue_count": 11}),
        ):
            with pytest.raises(BadArgument, match="too many queues") as caught:
                await refused
            assert (caught.value.value, caught.value.limit) == (limit + 1, limit)
        await append(log, message(topic="a", queue_id=0), message(topic="a", queue_id=1))
        await log.topics.delete("a")
        await log.topics.create("b", **{**PLAIN, "write_queue_count": 8})
        with pytest.raises(BadArgument, match="too many queues"):
            await log.topics.create("c", **{**PLAIN, "write_queue_count": 1})


async def test_a_batch_begins_so_many_queues() -> None:
    """A batch that begins more queues is refused whole, also in topics that it would create.

    Queues that have a message do not count.
    """
    machine = Machine(batch_new_queue_count_max=3)
    async with machine.running() as log:
        four = [message(topic="a", queue_id=number) for number in range(4)]
        for refused in (four, [message(topic=name, queue_id=0) for name in "bcde"]):
            with pytest.raises(BatchTooLarge, match="first messages of 4 queues") as caught:
                await append(log, *refused)
            assert (caught.value.field, caught.value.value, caught.value.limit) == ("messages", 4, 3)
        assert log.chain.max_physical_offset == 0
        assert log.topics.find("a") is log.topics.find("b") is None
        await append(log, *[message(topic="a", queue_id=0) for _ in range(9)])
        await append(log, *four)
        await append(log, *four, message(topic="b", queue_id=0))
        await append(log, *four, *[message(topic=name, queue_id=1) for name in "bcd"])


async def test_too_many_queues() -> None:
    """The queues of all topics are bounded: a batch that would create a topic too many is refused, others are not."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(topic="a"))
        limit = log.topics.table.queue_count + 4
    async with machine.running(queue_count_max=limit) as log:
        await append(log, message(topic="b"))
        with pytest.raises(BadArgument, match="too many queues") as caught:
            await append(log, message(topic="a"), message(topic="c"))
        assert (caught.value.field, caught.value.value, caught.value.limit) == ("messages[1].topic", limit + 4, limit)
        assert log.topics.find("c") is None
        await append(log, message(topic="a"), message(topic="b"))
        await log.topics.delete("b")
        assert log.topics.table.queue_count == limit - 3
        await log.topics.delete("a")
        await append(log, message(topic="c"))
