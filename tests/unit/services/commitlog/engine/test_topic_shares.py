# SPDX-License-Identifier: Apache-2.0
"""Shares of topics in the log: accepted and refused shares, their durability, and the queues that take appends."""

import pytest
from msgspec.structs import replace
from reput.commitlog.v1 import topic_service_pb2

from libs.formats import store_layout
from libs.formats.config import topic_share, topics_json
from libs.formats.config.topic_share import HASH_MAX, QueueShare, TopicShare
from libs.log.state import topics_file
from libs.machine.testing.memory_fs import nothing_survives
from libs.requests.errors import BadArgument, TopicSetApart
from libs.runtime.rpc import topic_shares
from libs.runtime.trust.audit.change import noting
from services.commitlog.errors import QueueNotHere, ShareOutdated
from services.commitlog.rpc.topic_servicer import TopicServicer
from tests.support.commitlog import DATA_DIR, Machine, append, message

SHARE = TopicShare(1, (QueueShare(2, 0, 9), QueueShare(3, 10, HASH_MAX)))
WIDER = TopicShare(5, (*SHARE.queues[:1], QueueShare(3, 10, HASH_MAX), QueueShare(5, 0, 0)))


async def test_a_share_is_durable_and_holds_after_a_power_cut() -> None:
    """A topic with a share takes messages for its own queues alone, also after the power was cut."""
    machine = Machine()
    log = await machine.start()
    topic = await log.topics.create("orders", write_queue_count=4, share=SHARE)
    assert topic.share == SHARE
    for _ in range(2):
        await append(log, message(queue_id=3))
        for queue_id in (0, None):
            with pytest.raises(QueueNotHere) as caught:
                await append(log, message(queue_id=queue_id))
            assert (caught.value.topic, caught.value.version) == ("orders", 1)
        machine.fs.crash(nothing_survives)
        log = await machine.start()
    await machine.stop(log)


async def test_which_shares_are_accepted() -> None:
    """A later version replaces a share, the same share is accepted again, others are refused and change nothing."""
    machine = Machine()
    log = await machine.start()
    await log.topics.create("orders", write_queue_count=6, share=SHARE)
    assert (await log.topics.update("orders", share=SHARE)).share == SHARE
    with pytest.raises(ShareOutdated):
        await log.topics.update("orders", share=replace(SHARE, queues=SHARE.queues[:1]))
    for wrong in (
        replace(SHARE, version=2, queues=SHARE.queues[:1]),
        replace(SHARE, version=2, queues=(QueueShare(2, 0, 8), SHARE.queues[1])),
        replace(WIDER, version=2),
        replace(SHARE, version=2, queues=(*SHARE.queues, QueueShare(6, 0, 0))),
    ):
        with pytest.raises(BadArgument):
            await log.topics.update("orders", share=wrong)
    with pytest.raises(BadArgument) as caught:
        await log.topics.update("orders", write_queue_count=3)
    assert caught.value.field == "write_queue_count"
    assert log.topics.get("orders").share == SHARE
    await machine.stop(log)


async def test_a_topic_of_one_log_becomes_a_share() -> None:
    """A topic without a share gets one that has all queues with messages. Then its messages must name a queue."""
    machine = Machine()
    log = await machine.start()
    await log.topics.create("orders", write_queue_count=4)
    await append(log, message(queue_id=3))
    with pytest.raises(BadArgument, match="queue 3 has messages"):
        await log.topics.update("orders", share=replace(SHARE, queues=SHARE.queues[:1]))
    await log.topics.update("orders", share=SHARE)
    with pytest.raises(QueueNotHere):
        await append(log, message(queue_id=None))
    await append(log, message(queue_id=2))
    await machine.stop(log)


async def test_a_sealed_queue_takes_no_messages() -> None:
    """A sealed queue refuses clients' messages, also after a power cut; its messages stay, and it can't open again."""
    machine = Machine()
    log = await machine.start()
    await log.topics.create("orders", write_queue_count=4, share=SHARE)
    await append(log, message(queue_id=3))
    sealed = replace(SHARE, version=2, queues=(SHARE.queues[0], replace(SHARE.queues[1], is_sealed=True)))
    await log.topics.update("orders", share=sealed)
    for _ in range(2):
        with pytest.raises(QueueNotHere, match="sealed"):
            await append(log, message(queue_id=3))
        await append(log, message(queue_id=2))
        machine.fs.crash(nothing_survives)
        log = await machine.start()
    with pytest.raises(BadArgument, match="stays sealed"):
        await log.topics.update("orders", share=replace(SHARE, version=9))
    await machine.stop(log)


async def test_a_share_that_can_not_be_read_sets_the_topic_apart() -> None:
    """A share of a later release forbids appends: they might be for queues of other logs."""
    machine = Machine()
    log = await machine.start()
    await log.topics.create("orders", write_queue_count=4, share=SHARE)
    await machine.stop(log)
    path = DATA_DIR / store_layout.TOPICS
    file = topics_json.loads(machine.fs.read(path).decode())
    topic = file.topics["orders"]
    file.topics["orders"] = replace(topic, attributes={topic_share.SHARE: "[3,1,[]]"})
    topics_file.save(machine.fs, DATA_DIR, file)
    log = await machine.start()
    with pytest.raises(TopicSetApart):
        await append(log, message(queue_id=2))
    await machine.stop(log)


async def test_an_audit_line_has_the_queues_that_differ() -> None:
    """A share can have hundreds of queues: the note of a change has those alone that changed."""
    machine = Machine()
    log = await machine.start()
    await log.topics.create("orders", write_queue_count=4, share=SHARE)
    sealed = replace(SHARE, version=2, queues=(replace(SHARE.queues[0], is_sealed=True), SHARE.queues[1]))
    with noting() as change:
        await TopicServicer(lambda: log).UpdateTopic(
            topic_service_pb2.UpdateTopicRequest(name="orders", share=topic_shares.message_of(sealed)), None
        )
    for noted, share, is_sealed in ((change.before, SHARE, False), (change.after, sealed, True)):
        assert isinstance(noted, topic_service_pb2.Topic)
        found = topic_shares.share_of(noted.share)
        assert (found.version, found.queues) == (
            share.version,
            (replace(SHARE.queues[0], is_sealed=is_sealed),),
        )
    await machine.stop(log)
