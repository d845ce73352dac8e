# SPDX-License-Identifier: Apache-2.0
"""The topic of the store's own state: only the store appends to it, and it exists when the store needs it."""

import pytest

from libs.formats.state.system_topics import STATE_TOPIC
from libs.requests.errors import TopicNotFound
from services.commitlog.errors import TopicForbidden
from tests.support.commitlog import LISTEN_HOST, Machine, append, bodies, message, request

BORN = LISTEN_HOST.to_bytes()


async def test_the_store_alone_appends() -> None:
    """A batch of the store may have messages of users; a user's batch to the topic is refused.

    The topic may exist or not.
    """
    machine = Machine()
    async with machine.running() as log:
        with pytest.raises(TopicForbidden):
            await append(log, message(topic=STATE_TOPIC, queue_id=0))
        assert log.topics.find(STATE_TOPIC) is None
        await log.pipeline.append_state(request(message(b"u"), message(b"s", topic=STATE_TOPIC, queue_id=0)), BORN)
        topic = log.topics.get(STATE_TOPIC)
        assert (topic.read_queue_count, topic.write_queue_count, topic.is_writable) == (1, 1, False)
        with pytest.raises(TopicForbidden):
            await append(log, message(topic=STATE_TOPIC, queue_id=0))
        assert bodies(log) == [b"u", b"s"]
    async with machine.running() as log:
        with pytest.raises(TopicForbidden):
            await append(log, message(topic=STATE_TOPIC, queue_id=0))
        await log.pipeline.append_state(request(message(b"s2", topic=STATE_TOPIC, queue_id=0)), BORN)
        assert bodies(log) == [b"u", b"s", b"s2"]


async def test_dead_letters_have_a_topic() -> None:
    """If appends of users create no topics, the store alone creates the topic of dead letters."""
    async with Machine(auto_create_topics=False).running() as log:
        letter = message(b"a", topic="%DLQ%g")
        for append_one, topics in ((log.pipeline.append, ["%DLQ%g"]), (log.pipeline.append_state, ["%DLQ%g", "other"])):
            with pytest.raises(TopicNotFound):
                await append_one(request(*(message(b"a", topic=topic) for topic in topics)), BORN)
        assert log.topics.find("%DLQ%g") is None
        await log.pipeline.append_state(request(letter), BORN)
        assert bodies(log) == [b"a"]


async def test_a_log_says_what_it_is() -> None:
    """A log that is alone neither follows nor has copies."""
    async with Machine().running() as log:
        assert log.replica_state == (False, False)
