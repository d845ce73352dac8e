# SPDX-License-Identifier: Apache-2.0
"""Topics, consumer offsets, delay offsets and the checkpoint mean the same for Reput and RocketMQ."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.indexer.v1 import consumer_offset_service_pb2 as offset_pb

from libs.formats.config import delay_offsets_json
from libs.formats.state import store_checkpoint
from libs.formats.state.system_topics import STATE_TOPIC
from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import SCHEDULE_TOPIC, Draft, Queue, Sizes
from tests.interop.rocketmq.writing import write_reput, write_rocketmq
from tests.support.patience import LIMIT_S

pytestmark = pytest.mark.interop

SIZES = Sizes()
COUNT = 400
DELIVERY_TIMEOUT_S = 60
AGAIN_S = 1.5  # longer than the level's delay
READ, WRITE = 4, 2
CHECKPOINT_LAG_MS_MAX = 1_000


async def reput_config(reput: ReputStore) -> dict[str, Any]:
    """Return topics without system topics, and all consumer offsets, as RocketMqStore's `read_config` has them."""
    topics = (await reput.log.topics.ListTopics(topic_pb.ListTopicsRequest())).topics
    groups = (await reput.index.offsets.ListConsumerGroups(offset_pb.ListConsumerGroupsRequest())).groups
    offsets: dict[str, dict[str, int]] = {}
    for group in groups:
        for offset in group.offsets:
            offsets.setdefault(f"{offset.topic}@{group.group}", {})[str(offset.queue_id)] = offset.queue_offset
    rows = {
        topic.name: [
            topic.read_queue_count,
            topic.write_queue_count,
            READ * topic.is_readable + WRITE * topic.is_writable,
            False,
        ]
        for topic in topics
        if not topic.is_system
    }
    return {"topics": rows, "consumer_offsets": offsets}


def without_system(config: dict[str, Any], system: set[str]) -> dict[str, Any]:
    """RocketMQ's configuration without the system topics of Reput's stores."""
    return {**config, "topics": {name: row for name, row in config["topics"].items() if name not in system}}


async def test_topics_and_consumer_offsets(tmp_path: Path, major: str) -> None:
    """RocketMQ's classes read the topics and consumer offsets that Reput keeps, and Reput reads theirs."""
    async with ReputStore.served(tmp_path, SIZES) as reput:
        for name, readable, writable in (("orders", True, True), ("closed", True, False), ("t" * 127, False, True)):
            await reput.log.topics.CreateTopic(
                topic_pb.CreateTopicRequest(
                    name=name, read_queue_count=7, write_queue_count=5, is_readable=readable, is_writable=writable
                )
            )
        for group, topic, queue_id, queue_offset in (
            ("a", "orders", 0, 7),
            ("a", "orders", 4, 0),
            ("b|%-", "none", 3, 9),
        ):
            offset = offset_pb.ConsumerOffset(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
            await reput.index.offsets.CommitConsumerOffset(
                offset_pb.CommitConsumerOffsetRequest(group=group, offsets=[offset])
            )
        expected = await reput_config(reput)
        system: set[str] = set()
        async with asyncio.timeout(LIMIT_S):
            while STATE_TOPIC not in system:  # the positions become records within a second
                topics = await reput.log.topics.ListTopics(topic_pb.ListTopicsRequest(include_system=True))
                system = {topic.name for topic in topics.topics if topic.is_system}
    async with await RocketMqStore.open(major, tmp_path, SIZES) as rocketmq:
        config = (await rocketmq.ask("read_config", dict[str, Any]))["config"]
        assert without_system(config, system) == expected
        config["topics"]["new"] = [3, 2, READ + WRITE, False]
        config["consumer_offsets"]["new@g"] = {"0": 2**40, "63": 1}
        await rocketmq.ask("write_config", dict[str, Any], **config)
        await rocketmq.stop()
    async with ReputStore.served(tmp_path, SIZES) as reput:
        assert await reput_config(reput) == without_system(config, system)


async def test_checkpoint(tmp_path: Path, major: str) -> None:
    """After an orderly stop of Reput or RocketMQ the checkpoint has the store time up to which files are safe.

    The other program continues from it.
    """
    history, drafts = History(), Drafts(5)
    async with ReputStore.served(tmp_path, SIZES) as reput:
        await write_reput(reput, history, drafts, COUNT)
        await reput.settle()
    last = history.messages[-1].store_time_ms
    written = store_checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    times = (written.commit_log_time_ms, written.consume_queue_time_ms, written.index_time_ms)
    assert last - CHECKPOINT_LAG_MS_MAX < times[0] <= last
    assert times[1] == last
    async with await RocketMqStore.open(major, tmp_path, SIZES) as rocketmq:
        read = await rocketmq.ask("checkpoint", dict[str, int])
        assert (read["log_time_ms"], read["queue_time_ms"], read["index_time_ms"]) == times
        await write_rocketmq(rocketmq, history, drafts, COUNT, has_v2=False)
        await rocketmq.stop()
    written = store_checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert written.is_of_rocketmq
    # RocketMQ's flush of the queues reads this time, flushes for some time, and writes the time that it read: a message
    # that arrives during the flush can be missing (DefaultMessageStore.FlushConsumeQueueService).
    assert written.consume_queue_time_ms in [message.store_time_ms for message in history.messages]
    assert written.consume_queue_time_ms >= times[1]
    async with ReputStore.served(tmp_path, SIZES) as reput:
        await reput.settle()
    written = store_checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert not written.is_of_rocketmq
    assert written.consume_queue_time_ms == history.messages[-1].store_time_ms


def delayed(drafts: Drafts, count: int) -> list[Draft]:
    """Return messages that are due after a second."""
    parts = drafts.take(count, topic="later")
    return [msgspec.structs.replace(part, properties=part.properties | {"DELAY": "1"}) for part in parts]


def delivered(queues: list[Queue]) -> list[bytes]:
    """Return the bodies that have arrived."""
    return [message.body for queue in queues if queue.topic == "later" for message in queue.messages]


async def wait_delivered(store: ReputStore | RocketMqStore, expected: list[bytes]) -> None:
    """Wait until all messages have arrived, each once."""
    async with asyncio.timeout(DELIVERY_TIMEOUT_S):
        while len(delivered(await store.read())) < len(expected):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.2)
    assert delivered(await store.read()) == expected


@pytest.mark.parametrize("major", ["4"], indirect=True)
async def test_rocketmq_delivers_what_reput_was_given(tmp_path: Path, major: str) -> None:
    """4.9 delivers the delayed messages of a store on which Reput was killed.

    Reput does not deliver them again. In 5.x the broker delivers, not the store.
    """
    drafts = delayed(Drafts(6), 20)
    bodies = [draft.body for draft in drafts]
    async with ReputStore.running(tmp_path, SIZES) as reput:
        await reput.append(drafts)
        await reput.kill()
    async with await RocketMqStore.open(major, tmp_path, SIZES, delivers=True) as rocketmq:
        await wait_delivered(rocketmq, bodies)
        await rocketmq.stop()
    assert next_level_offset(tmp_path) == len(drafts)
    async with ReputStore.served(tmp_path, SIZES) as reput, reput.delivering():
        await reput.settle()
        await asyncio.sleep(AGAIN_S)
        await wait_delivered(reput, bodies)


async def test_reput_delivers_what_rocketmq_was_given(tmp_path: Path, major: str) -> None:
    """Reput delivers the delayed messages of a store on which RocketMQ was killed.

    They stay readable in the schedule topic.
    """
    drafts = delayed(Drafts(7), 20)
    bodies = [draft.body for draft in drafts]
    async with await RocketMqStore.open(major, tmp_path, SIZES) as rocketmq:
        await rocketmq.put(drafts)
        await rocketmq.kill()
    async with ReputStore.served(tmp_path, SIZES) as reput, reput.delivering():
        await reput.settle()
        await wait_delivered(reput, bodies)
        (waited,) = [queue for queue in await reput.read() if queue.topic == SCHEDULE_TOPIC]
        assert [message.body for message in waited.messages] == bodies
    assert next_level_offset(tmp_path) == len(drafts)


@pytest.mark.parametrize("major", ["4"], indirect=True)
async def test_both_deliver_the_rest_by_turns(tmp_path: Path, major: str) -> None:
    """Reput, RocketMQ, Reput and RocketMQ each deliver what the other left of a level, and nothing twice.

    Each is stopped in order. Messages that it leaves are put while nothing delivers.
    """
    drafts = delayed(Drafts(8), 40)
    parts = [drafts[start : start + 10] for start in range(0, len(drafts), 10)]
    bodies = [draft.body for draft in drafts]
    async with ReputStore.served(tmp_path, SIZES) as reput:
        async with reput.delivering():
            await reput.append(parts[0])
            await wait_delivered(reput, bodies[:10])
        await reput.append(parts[1])
    assert next_level_offset(tmp_path) == 10
    async with await RocketMqStore.open(major, tmp_path, SIZES, delivers=True) as rocketmq:
        await wait_delivered(rocketmq, bodies[:20])
        await rocketmq.stop()
    async with await RocketMqStore.open(major, tmp_path, SIZES) as rocketmq:
        await rocketmq.put(parts[2])
        await rocketmq.stop()
    assert next_level_offset(tmp_path) == 20
    async with ReputStore.served(tmp_path, SIZES) as reput:
        async with reput.delivering():
            await wait_delivered(reput, bodies[:30])
            await asyncio.sleep(AGAIN_S)
            await wait_delivered(reput, bodies[:30])
        await reput.append(parts[3])
    assert next_level_offset(tmp_path) == 30
    async with await RocketMqStore.open(major, tmp_path, SIZES, delivers=True) as rocketmq:
        await wait_delivered(rocketmq, bodies)
        await asyncio.sleep(AGAIN_S)
        await wait_delivered(rocketmq, bodies)
        await rocketmq.stop()
    async with ReputStore.served(tmp_path, SIZES) as reput, reput.delivering():
        await asyncio.sleep(AGAIN_S)
        await wait_delivered(reput, bodies)
    assert next_level_offset(tmp_path) == len(drafts)


@pytest.mark.parametrize("major", ["4"], indirect=True)
async def test_reput_delivers_what_rocketmq_left(tmp_path: Path, major: str) -> None:
    """Reput begins at the offset of RocketMQ's delayOffset.json in a store that had no Delivery before."""
    drafts = delayed(Drafts(9), 20)
    bodies = [draft.body for draft in drafts]
    async with await RocketMqStore.open(major, tmp_path, SIZES, delivers=True) as rocketmq:
        await rocketmq.put(drafts[:12])
        await wait_delivered(rocketmq, bodies[:12])
        await rocketmq.stop()
    async with await RocketMqStore.open(major, tmp_path, SIZES) as rocketmq:
        await rocketmq.put(drafts[12:])
        await rocketmq.stop()
    assert next_level_offset(tmp_path) == 12
    async with ReputStore.served(tmp_path, SIZES) as reput, reput.delivering():
        await wait_delivered(reput, bodies)
        await asyncio.sleep(AGAIN_S)
        await wait_delivered(reput, bodies)
    assert next_level_offset(tmp_path) == len(drafts)


def next_level_offset(directory: Path) -> int:
    """The offset of the level in delayOffset.json."""
    return delay_offsets_json.loads((directory / "config" / "delayOffset.json").read_text()).offsets[1]
