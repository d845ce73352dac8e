# SPDX-License-Identifier: Apache-2.0
"""Topics that Reput purged, deleted, bounded or widened, at RocketMQ's broker, and in Reput again.

RocketMQ has neither begins of topics nor rules of retention. So it shows the messages that the log still has, with the
offsets at which Reput stored them. Reput hides the same messages before and after.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.indexer.v1 import index_service_pb2 as index_pb

from cli.verify.codes import Area
from cli.verify.findings import Finding, Report
from cli.verify.store import verify_store
from libs.formats import store_layout
from libs.formats.config.topics_json import RETENTION_BYTES, RETENTION_HOURS
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_broker import RocketMqBroker, Seen, Topic
from tests.interop.rocketmq.rocketmq_store import RELEASES, RocketMqStore, ToolMissing, command
from tests.interop.rocketmq.stored import Queue, Sizes

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

SIZES = Sizes()
PURGED, GONE, AGAIN, SHORT, WIDE, PLAIN = "purged", "gone", "again", "short", "wide", "plain"
TOPICS = PURGED, GONE, AGAIN, SHORT, WIDE, PLAIN
QUEUE_COUNT, WIDE_COUNT, COUNT = 2, 4, 80
"""Each queue gets COUNT / QUEUE_COUNT messages, which take more than a file of a queue."""
IN_QUEUE = COUNT // QUEUE_COUNT
LIMIT_BYTES, LONG_HOURS = 4_000, 720
Places = dict[tuple[int, int], str]
"""The body of each message of a topic, by queue and queue offset."""


class Store:
    """A directory, the messages that Reput shows, and the messages that the log has."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shown: dict[str, Places] = {topic: {} for topic in TOPICS}
        self.stored: dict[str, Places] = {topic: {} for topic in TOPICS}

    @contextlib.asynccontextmanager
    async def reput(self, *, is_killed: bool = False) -> AsyncIterator[ReputStore]:
        """Run Reput, which shows the right messages at both ends. Afterwards the directory has no faults."""
        opened = ReputStore.running if is_killed else ReputStore.served
        async with opened(self.directory, SIZES) as store:
            await self.check_reput(store)
            yield store
            await self.check_reput(store)
            if is_killed:
                await store.kill()
        found: list[Finding] = []
        report = Report(show=found.append, limit=100, areas=frozenset((Area.LOG, Area.QUEUES, Area.FILES)))
        verify_store(self.directory, report)
        assert report.fault_count == 0, found

    async def check_reput(self, store: ReputStore) -> None:
        """Reput shows the messages behind the begins, by offset and by key, and the least offset is that of these."""
        await store.settle()
        queues = [queue for queue in await store.read() if queue.topic in TOPICS]
        assert {topic: _places(topic, queues) for topic in TOPICS} == self.shown
        for queue in queues:
            if queue.messages:
                assert queue.min_queue_offset == queue.messages[0].queue_offset
            assert queue.max_queue_offset == _ends(self.stored[queue.topic]).get(queue.queue_id, 0)
        known = [topic for topic in TOPICS if self.stored[topic]]
        for topic, rows in zip(known, await store.by_keys([(topic, topic) for topic in known]), strict=True):
            found = {(row.queue_id, row.queue_offset): row.body.decode() for row in rows}
            assert found == {place: body for place, body in self.shown[topic].items() if "theirs" not in body}

    def check_rocketmq(self, queues: list[Queue]) -> None:
        """RocketMQ shows all messages that the log has, and continues behind the last of them."""
        assert {topic: _places(topic, queues) for topic in TOPICS} == self.stored
        for queue in queues:
            if queue.topic in TOPICS:
                assert (queue.min_queue_offset, queue.max_queue_offset) == (
                    0,
                    _ends(self.stored[queue.topic])[queue.queue_id],
                )

    async def fill(self, store: ReputStore, name: str, *topics: str, queues: int = QUEUE_COUNT) -> None:
        """Append messages to all queues of topics in turn, each with its topic as its key."""
        for topic in topics:
            messages = [
                append_pb.AppendMessage(
                    topic=topic,
                    queue_id=number % queues,
                    body=f"{name}{number}".encode(),
                    properties={"KEYS": topic},
                )
                for number in range(COUNT)
            ]
            result = (await store.log.append.Append(append_pb.AppendRequest(messages=messages))).result
            for message, offset in zip(messages, result.queue_offsets, strict=True):
                self.note(topic, message.queue_id, offset, message.body.decode())

    def note(self, topic: str, queue_id: int, offset: int, body: str) -> None:
        """Expect a message."""
        assert offset == _ends(self.stored[topic]).get(queue_id, 0)
        self.shown[topic][queue_id, offset] = self.stored[topic][queue_id, offset] = body

    def hide(self, topic: str, kept: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        """Expect that Reput shows only these messages of a topic."""
        self.shown[topic] = {place: body for place, body in self.shown[topic].items() if body in kept}


def _places(topic: str, queues: list[Queue]) -> Places:
    rows = [row for queue in queues if queue.topic == topic for row in queue.messages]
    return {(row.queue_id, row.queue_offset): row.body.decode() for row in rows}


def _ends(places: Places) -> dict[int, int]:
    """Return the offset behind the last message of each queue."""
    ends: dict[int, int] = {}
    for queue_id, offset in places:
        ends[queue_id] = max(ends.get(queue_id, 0), offset + 1)
    return ends


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """RocketMQ is there, or a failure names the missing tool."""
    try:
        for major in RELEASES:
            command(major)
    except ToolMissing as missing:
        pytest.fail(str(missing))


async def _write(store: Store, *, is_killed: bool) -> None:
    """Fill topics and change them in each way, some while they have later messages, too."""
    async with store.reput(is_killed=is_killed) as reput:
        for topic in TOPICS:
            request = topic_pb.CreateTopicRequest(
                name=topic, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT
            )
            await reput.log.topics.CreateTopic(request)
        await store.fill(reput, "old", *TOPICS)
        await reput.settle()
        await reput.log.topics.PurgeTopic(topic_pb.PurgeTopicRequest(name=PURGED))
        for topic in (GONE, AGAIN):
            await reput.log.topics.DeleteTopic(topic_pb.DeleteTopicRequest(name=topic))
        await reput.log.topics.CreateTopic(
            topic_pb.CreateTopicRequest(name=AGAIN, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT)
        )
        for topic in (PURGED, GONE, AGAIN):
            store.hide(topic)
        await _widen(reput)
        await store.fill(reput, "new", PURGED, AGAIN, PLAIN)
        await store.fill(reput, "new", WIDE, queues=WIDE_COUNT)
        await reput.log.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=PLAIN, retention_hours=LONG_HOURS))
        await reput.log.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=SHORT, retention_bytes=LIMIT_BYTES))
        await _expire(store, reput, SHORT)


async def _widen(reput: ReputStore) -> None:
    """Give a topic more queues in the order of `reput topics update --queues`."""
    await reput.log.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=WIDE, read_queue_count=WIDE_COUNT))
    await reput.log.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=WIDE, write_queue_count=WIDE_COUNT))


async def _expire(store: Store, reput: ReputStore, topic: str) -> None:
    """Do what the Janitor does for a topic with a limit by size."""
    await reput.settle()
    asked = index_pb.GetTopicExpiryRequest(topic=topic, size_bytes_max=LIMIT_BYTES)
    told = await reput.index.index.GetTopicExpiry(asked)
    assert told.expired_message_count > 0
    begin = topic_pb.TopicBegin(topic=topic, begin_physical_offset=told.begin_physical_offset)
    await reput.log.topics.ExpireMessages(topic_pb.ExpireMessagesRequest(begins=[begin]))
    ordered = [body for _, body in sorted(store.shown[topic].items(), key=lambda one: (one[0][1], one[0][0]))]
    store.hide(topic, set(ordered[told.expired_message_count :]))


@pytest.mark.parametrize("is_killed", [False, True], ids=["clean", "killed"])
@pytest.mark.parametrize("major", list(RELEASES), ids=RELEASES.get)
async def test_both_releases_open_it(tmp_path: Path, major: str, *, is_killed: bool) -> None:
    """RocketMQ continues each queue where Reput ended, after a clean stop and after a kill; Reput hides what it hid."""
    store = Store(tmp_path)
    await _write(store, is_killed=is_killed)
    async with await RocketMqStore.open(major, tmp_path, SIZES, index_safe=True) as rocketmq:
        store.check_rocketmq(await rocketmq.read())
        await rocketmq.stop()
    async with store.reput() as reput:
        await store.fill(reput, "later", PURGED, AGAIN, SHORT)
        await _expire(store, reput, SHORT)
    (tmp_path / store_layout.INDEX_PROGRESS).unlink()  # the next start builds all indexes from the log
    async with store.reput():
        pass
    async with await RocketMqStore.open(major, tmp_path, SIZES, index_safe=True) as rocketmq:
        store.check_rocketmq(await rocketmq.read())
        await rocketmq.stop()


async def test_a_broker_serves_it(tmp_path: Path) -> None:
    """A broker serves the store and its own clients write to it, change topics and delete one.

    Reput then has the broker's messages and numbers of queues. It hides what it hid, and keeps the rules of retention.
    """
    store = Store(tmp_path)
    await _write(store, is_killed=False)
    async with await RocketMqBroker.open(tmp_path, SIZES) as broker:
        topics = await broker.topics()
        assert GONE not in topics
        assert topics[WIDE] == Topic(WIDE_COUNT, WIDE_COUNT, {})
        assert topics[SHORT] == Topic(QUEUE_COUNT, QUEUE_COUNT, {RETENTION_BYTES: str(LIMIT_BYTES)})
        assert topics[PLAIN] == Topic(QUEUE_COUNT, QUEUE_COUNT, {RETENTION_HOURS: str(LONG_HOURS)})
        for topic in TOPICS:
            assert _seen(await broker.read(topic)) == store.stored[topic]
            ends = _ends(store.stored[topic])
            assert await broker.bounds(topic, len(ends)) == [(0, ends[queue_id]) for queue_id in sorted(ends)]
        for topic in (PURGED, AGAIN, SHORT, WIDE):
            for queue_id in range(WIDE_COUNT if topic == WIDE else QUEUE_COUNT):
                await broker.send(topic, f"theirs{queue_id}", queue_id=queue_id)
                store.note(topic, queue_id, _ends(store.stored[topic])[queue_id], f"theirs{queue_id}")
        await broker.change_topic(SHORT, queue_count=WIDE_COUNT)
        await broker.delete_topic(PLAIN)
        assert await broker.read(PLAIN) == []
        await broker.stop()
    async with store.reput() as reput:
        found = {one.name: one for one in (await reput.log.topics.ListTopics(topic_pb.ListTopicsRequest())).topics}
        assert found[SHORT].retention_bytes == LIMIT_BYTES
        assert (found[SHORT].read_queue_count, found[SHORT].write_queue_count) == (WIDE_COUNT, WIDE_COUNT)
        assert GONE not in found
        assert (
            PLAIN not in found
        )  # its messages are still in the log: Reput shows them until it deletes the topic itself
        await reput.log.topics.CreateTopic(topic_pb.CreateTopicRequest(name=PLAIN))
        await reput.log.topics.DeleteTopic(topic_pb.DeleteTopicRequest(name=PLAIN))
        store.hide(PLAIN)
        await _expire(store, reput, SHORT)
        await reput.log.topics.PurgeTopic(topic_pb.PurgeTopicRequest(name=WIDE))
        store.hide(WIDE)
    async with await RocketMqBroker.open(tmp_path, SIZES) as broker:
        for topic in (PURGED, AGAIN, SHORT, WIDE):
            assert _seen(await broker.read(topic)) == store.stored[topic]
        await broker.stop()
    async with store.reput():
        pass


def _seen(messages: list[Seen]) -> Places:
    return {(one.queue_id, one.queue_offset): one.body for one in messages}
