# SPDX-License-Identifier: Apache-2.0
"""A topic that is deleted and created again while its messages are in the log.

Reput and RocketMQ show the same messages, and continue with the same queue offsets.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.indexer.v1 import index_service_pb2 as index_pb

from cli.verify.codes import Area
from cli.verify.findings import Finding, Report
from cli.verify.store import verify_store
from libs.formats import store_layout
from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History, Reader
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import Draft, Sizes

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

QUEUE_COUNT, BATCH = 4, 100
TOPIC, BESIDE = "re", "beside"


class _Store:
    """A directory with its expected content, which both programs open in turns."""

    def __init__(self, directory: Path, major: str, *, is_killed: bool) -> None:
        self.history = History()
        self._directory = directory
        self._major = major
        self._is_killed = is_killed
        self._sizes = Sizes()
        self._drafts = Drafts(11)

    @contextlib.asynccontextmanager
    async def rocketmq(self) -> AsyncIterator[RocketMqStore]:
        """Run RocketMQ, which finds all messages at first, and shows the queues again at the end.

        Then it is stopped or killed.
        """
        async with await RocketMqStore.open(self._major, self._directory, self._sizes, index_safe=True) as store:
            await Reader(self.history, self._sizes).check_rocketmq(store)
            yield store
            await store.settle()
            Reader(self.history, self._sizes).check_queues(await store.read())
            await (store.kill() if self._is_killed else store.stop())

    @contextlib.asynccontextmanager
    async def reput(self) -> AsyncIterator[ReputStore]:
        """Run Reput in the same way. Afterwards the directory has no faults."""
        opened = ReputStore.running if self._is_killed else ReputStore.served
        async with opened(self._directory, self._sizes) as store:
            await store.settle()
            await Reader(self.history, self._sizes).check_reput(store)
            yield store
            await store.settle()
            Reader(self.history, self._sizes).check_queues(await store.read())
            if self._is_killed:
                await store.kill()
        found: list[Finding] = []
        report = Report(show=found.append, limit=100, areas=frozenset((Area.LOG, Area.QUEUES, Area.FILES)))
        verify_store(self._directory, report)
        assert report.fault_count == 0, found

    def forget_indexes(self) -> None:
        """Have the next start of the Indexer build all indexes from the log."""
        (self._directory / store_layout.INDEX_PROGRESS).unlink(missing_ok=True)  # a kill may come before the first

    async def put(self, store: RocketMqStore | ReputStore, count: int, first: int) -> None:
        """Write messages to all queues of the topic in turn, and some to another topic.

        The messages of the topic get queue offsets from `first` on.
        """
        drafts: list[Draft] = []
        for number, draft in enumerate(self._drafts.take(count, topic=TOPIC)):
            drafts.append(msgspec.structs.replace(draft, queue_id=number % QUEUE_COUNT))
        drafts += self._drafts.take(count // 10, topic=BESIDE)
        write = store.put if isinstance(store, RocketMqStore) else store.append
        placed = [
            place for start in range(0, len(drafts), BATCH) for place in await write(drafts[start : start + BATCH])
        ]
        self.history.send(drafts)
        self.history.acknowledge(drafts, placed)
        assert [place[1] for place in placed[:count]] == [first + number // QUEUE_COUNT for number in range(count)]


@pytest.mark.parametrize("is_killed", [False, True], ids=["clean", "killed"])
async def test_rocketmq_makes_it_again(tmp_path: Path, major: str, *, is_killed: bool) -> None:
    """RocketMQ deletes and creates the topic, before Reput first opens the store and afterwards.

    Reput shows the messages that RocketMQ shows, also after it has built its indexes anew.
    """
    store = _Store(tmp_path, major, is_killed=is_killed)
    async with store.rocketmq() as rocketmq:
        await store.put(rocketmq, 400, 0)
        await rocketmq.settle()
        await rocketmq.delete_topic(TOPIC)
        await store.put(rocketmq, 100, 0)
    async with store.reput() as reput:
        await store.put(reput, 40, 25)
    async with store.rocketmq() as rocketmq:
        await store.put(rocketmq, 8, 35)
        await rocketmq.settle()
        await rocketmq.delete_topic(TOPIC)
        await store.put(rocketmq, 12, 0)
    async with store.reput() as reput:
        await store.put(reput, 4, 3)
    store.forget_indexes()
    async with store.reput() as reput:
        await store.put(reput, 4, 4)
    async with store.rocketmq() as rocketmq:
        await store.put(rocketmq, 4, 5)


@pytest.mark.parametrize("is_killed", [False, True], ids=["clean", "killed"])
@pytest.mark.parametrize("is_removed", [False, True], ids=["kept", "removed"])
async def test_reput_makes_it_again(tmp_path: Path, major: str, *, is_killed: bool, is_removed: bool) -> None:
    """Both programs continue the queue offsets after Reput deletes and creates the topic.

    Reput shows no message from before the deletion, also after a rebuild.
    """
    made, sizes = Drafts(11), Sizes()

    async def put(store: RocketMqStore | ReputStore, count: int, first: int) -> None:
        drafts = [
            msgspec.structs.replace(draft, queue_id=number % QUEUE_COUNT)
            for number, draft in enumerate(made.take(count, topic=TOPIC))
        ]
        placed = await (store.put(drafts) if isinstance(store, RocketMqStore) else store.append(drafts))
        assert [place[1] for place in placed] == [first + number // QUEUE_COUNT for number in range(count)]

    async def check(store: ReputStore, end: int) -> None:
        await store.settle()
        shown = {queue.queue_id: queue.messages for queue in await store.read() if queue.topic == TOPIC}
        offsets = {queue_id: [message.queue_offset for message in messages] for queue_id, messages in shown.items()}
        assert offsets == {queue_id: list(range(20, end)) for queue_id in range(QUEUE_COUNT)}

    async with ReputStore.served(tmp_path, sizes) as reput:
        await put(reput, 80, 0)
        await reput.settle()
        await reput.log.topics.DeleteTopic(topic_pb.DeleteTopicRequest(name=TOPIC))
        if is_removed:
            request = index_pb.RemoveQueuesRequest(selection=index_pb.QUEUE_SELECTION_UNUSED_TOPICS)
            assert (await reput.index.index.RemoveQueues(request)).removed_queue_count >= QUEUE_COUNT
        await reput.log.topics.CreateTopic(topic_pb.CreateTopicRequest(name=TOPIC))
        await put(reput, 40, 20)
        await check(reput, 30)
    async with await RocketMqStore.open(major, tmp_path, sizes, index_safe=True) as rocketmq:
        await put(rocketmq, 8, 30)
        await rocketmq.settle()
        await (rocketmq.kill() if is_killed else rocketmq.stop())
    for _ in range(2):
        async with ReputStore.served(tmp_path, sizes) as reput:
            await check(reput, 32)
        (tmp_path / store_layout.INDEX_PROGRESS).unlink()  # the second start builds all from the log
