# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's broker continues groups, delays, transactions and dead letters of Reput.

Reput continues the broker's.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.commitlog.v1.topic_service_pb2 import CreateTopicRequest
from reput.delivery.v1 import delay_service_pb2 as delays_pb
from reput.delivery.v1 import group_service_pb2 as groups_pb
from reput.delivery.v1 import transaction_service_pb2 as transactions_pb

from libs.formats.config import delay_offsets_json
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_broker import QUIET_MS, WAIT_MS, Retries, RocketMqBroker
from tests.interop.rocketmq.rocketmq_store import ToolMissing, command
from tests.interop.rocketmq.stored import Sizes
from tests.support import served_delivery
from tests.support.delivery_stack import GROUP, TOPIC, Stack, milliseconds
from tests.support.patience import LIMIT_S

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

SIZES = Sizes()
REMINDERS, PAYMENTS, PRODUCERS = "reminders", "payments", "shop"
SECOND, HOURS = "1", "18"
SOON = " ".join(["1s"] * 18)
"""Delays with which a Delivery delivers at once, however long a message of the last level would wait."""
"""Delay levels: the broker begins and ends within the longer one."""
COMMIT, ROLLBACK = transactions_pb.RESOLUTION_COMMIT, transactions_pb.RESOLUTION_ROLLBACK
POLICY = groups_pb.GroupPolicy(attempts_max=3, backoffs=[milliseconds(1_000), milliseconds(5_000)])
NEVER_ASKED = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """RocketMQ is there, or a failure names the missing tool."""
    try:
        command("5")
    except ToolMissing as missing:
        pytest.fail(str(missing))


class Store(Stack):
    """Reput's store, and the operations of this test on it."""

    def __init__(self, reput: ReputStore, client: served_delivery.Client) -> None:
        super().__init__(reput.log, reput.index, client)
        self.reput = reput

    async def fill(self, topic: str, *bodies: str, **properties: str) -> None:
        """Append messages to queue 0, each with its body as its id."""
        await fill(self.reput, topic, *bodies, **properties)

    async def texts(self, topic: str) -> list[str]:
        """All messages of a topic that consumers see, sorted."""
        found = [row for queue in await self.reput.read() if queue.topic == topic for row in queue.messages]
        return sorted(row.body.decode() for row in found)

    async def until(self, topic: str, *expected: str) -> None:
        """Wait until a topic has this many messages, and check that they are these, each once."""
        async with asyncio.timeout(LIMIT_S):
            while len(await self.texts(topic)) < len(expected):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.1)
        assert await self.texts(topic) == sorted(expected)

    async def end(self, name: str, how: transactions_pb.Resolution.ValueType) -> None:
        """End a transaction."""
        request = transactions_pb.EndTransactionRequest(transaction_id=name, producer_group=PRODUCERS, resolution=how)
        await self.client.transactions.EndTransaction(request)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, directory: Path, *flags: str) -> AsyncIterator["Store"]:
        """CommitLog, Indexer and Delivery, which are stopped in order."""
        async with (
            ReputStore.served(directory, SIZES) as reput,
            served_delivery.process(reput.target, reput.index_target, *flags) as delivery,
            served_delivery.client_of(f"127.0.0.1:{delivery.port}") as client,
        ):
            yield cls(reput, client)
            assert await delivery.end() == 0


async def fill(reput: ReputStore, topic: str, *bodies: str, **properties: str) -> None:
    """Append messages to queue 0, each with its body as its id. It needs no Delivery."""
    messages = [
        AppendMessage(topic=topic, body=body.encode(), properties={"UNIQ_KEY": body, **properties}) for body in bodies
    ]
    await reput.log.append.Append(AppendRequest(messages=messages))


class Times:
    """Due times of the reminders, in milliseconds since the epoch, far enough apart for a busy machine."""

    def __init__(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.early, self.away, self.there, self.last = (now_ms + 1_000 * s for s in (2, 12, 30, 100))


async def test_there_and_back(tmp_path: Path) -> None:
    """Groups continue where they were, and delays and transactions end once, in Reput's and in RocketMQ's hands."""
    times = Times()
    async with Store.open(tmp_path) as store:
        await begin_groups(store)
        await begin_delays(store, times)
        await begin_transactions(store)
    async with await RocketMqBroker.open(tmp_path, SIZES) as broker:
        await go_on_with_groups(broker)
        await go_on_with_transactions(broker)
        await go_on_with_delays(broker, times)
        theirs = await broker.begin(PRODUCERS, PAYMENTS, "theirs")
        await broker.stop()
    async with Store.open(tmp_path) as store:
        await end_groups(store)
        await store.end(theirs, COMMIT)
        await store.until(PAYMENTS, "committed", "open", "theirs")
        await store.until(REMINDERS, "early", "away", "there", "last", "theirs")
        await asyncio.sleep(QUIET_MS / 1000)
        assert await store.texts(REMINDERS) == sorted(["early", "away", "there", "last", "theirs"])
        assert await store.texts(PAYMENTS) == ["committed", "open", "theirs"]


async def test_delay_levels_there_and_back(tmp_path: Path) -> None:
    """The broker delivers what Reput left of a level, Reput delivers what the broker left, and nothing comes twice."""
    async with Store.open(tmp_path) as store:
        await store.fill(REMINDERS, "ours", DELAY=SECOND)
        await store.until(REMINDERS, "ours")
    async with ReputStore.served(tmp_path, SIZES) as reput:
        await fill(reput, REMINDERS, "theirs", DELAY=SECOND)
        await fill(reput, REMINDERS, "late", DELAY=HOURS)
    assert level_offsets(tmp_path) == {1: 1}
    async with await RocketMqBroker.open(tmp_path, SIZES) as broker:
        async with asyncio.timeout(LIMIT_S):
            while len(await broker.read(REMINDERS)) < 2:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.2)
        assert sorted(message.body for message in await broker.read(REMINDERS)) == ["ours", "theirs"]
        await broker.stop()
    left = level_offsets(tmp_path)
    assert (left[1], left.get(int(HOURS), 0)) == (2, 0)
    async with Store.open(tmp_path, "--message-delay-level", SOON) as store:
        await store.fill(REMINDERS, "again", DELAY=SECOND)
        await store.until(REMINDERS, "ours", "theirs", "again", "late")
        await asyncio.sleep(QUIET_MS / 1000)
        assert await store.texts(REMINDERS) == sorted(["ours", "theirs", "again", "late"])
    left = level_offsets(tmp_path)
    assert (left[1], left[int(HOURS)]) == (3, 1)


def level_offsets(directory: Path) -> dict[int, int]:
    """The offsets in delayOffset.json, by level."""
    return delay_offsets_json.loads((directory / "config" / "delayOffset.json").read_text()).offsets


async def begin_groups(store: Store) -> None:
    """Ack two messages, bury a third, leave two in flight and five new."""
    for topic in (TOPIC, REMINDERS, PAYMENTS):
        request = CreateTopicRequest(
            name=topic, read_queue_count=1, write_queue_count=1, is_readable=True, is_writable=True
        )
        await store.log.topics.CreateTopic(request)
    await store.client.groups.SetGroup(groups_pb.SetGroupRequest(group=GROUP, policy=POLICY))
    await store.fill(TOPIC, "m0", "m1", "poison", *(f"m{number}" for number in range(3, 10)))
    received = await store.receive(5)
    assert [one.message.body for one in received] == [b"m0", b"m1", b"poison", b"m3", b"m4"]
    await store.settle("ack", *received[:2])
    await store.settle("bury", received[2])


async def begin_delays(store: Store, times: Times) -> None:
    """The message that waits longest is the first in the topic, another is delivered here, and a third is cancelled."""
    for name, due_ms in (("last", times.last), ("early", times.early), ("away", times.away), ("there", times.there)):
        await store.fill(REMINDERS, name, TIMER_DELIVER_MS=str(due_ms))
    await store.fill(REMINDERS, "cancelled", TIMER_DELIVER_MS=str(times.there))
    request = delays_pb.CancelDelayedRequest(topic=REMINDERS, message_id="cancelled")
    await store.client.delays.CancelDelayed(request)
    async with asyncio.timeout(LIMIT_S):
        while "early" not in await store.texts(REMINDERS):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.1)


async def begin_transactions(store: Store) -> None:
    """A transaction is committed, another is rolled back, and a third stays open."""
    for name in ("committed", "rolled-back", "open"):
        more = {} if name == "open" else NEVER_ASKED
        await store.fill(PAYMENTS, name, TRAN_MSG="true", PGROUP=PRODUCERS, **more)
    await store.end("committed", COMMIT)
    await store.end("rolled-back", ROLLBACK)


async def go_on_with_groups(broker: RocketMqBroker) -> None:
    """RocketMQ has the group's offset, its policy and its dead letter, and delivers the unacked messages."""
    assert await broker.offsets(GROUP, TOPIC) == {"0": 3}
    assert await broker.retries(GROUP) == Retries(retry_count_max=2, backoffs_ms=[1_000, 5_000])
    assert [letter.body for letter in await broker.read(f"%DLQ%{GROUP}")] == ["poison"]
    assert await broker.consume(GROUP, TOPIC, 3, wait_ms=WAIT_MS) == ["m3", "m4", "m5"]
    assert await broker.offsets(GROUP, TOPIC) == {"0": 6}


async def go_on_with_transactions(broker: RocketMqBroker) -> None:
    """RocketMQ asks the producer of the open transaction, and of no other, and each message is seen once."""
    assert await broker.answer(PRODUCERS, PAYMENTS, commit="open") == ["open"]
    assert sorted(message.body for message in await broker.read(PAYMENTS)) == ["committed", "open"]


async def go_on_with_delays(broker: RocketMqBroker, times: Times) -> None:
    """RocketMQ delivers the messages that are due there, at their time and once, and gets a new message."""
    await broker.send(REMINDERS, "theirs", deliver_ms=times.last)
    async with asyncio.timeout(LIMIT_S):
        await asyncio.sleep(max(0, times.there + QUIET_MS - time.time_ns() // 1_000_000) / 1_000)
        while len(await broker.read(REMINDERS)) < 3:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.2)
    found = {message.body: message.store_time_ms for message in await broker.read(REMINDERS)}
    assert sorted(message.body for message in await broker.read(REMINDERS)) == ["away", "early", "there"]
    assert found["away"] >= times.away
    assert found["there"] >= times.there


async def end_groups(store: Store) -> None:
    """The group continues where RocketMQ stopped, with its own policy."""
    received = await store.receive(10)
    assert [one.message.body for one in received] == [b"m6", b"m7", b"m8", b"m9"]
    await store.settle("ack", *received)
    found = (await store.client.groups.GetGroup(groups_pb.GetGroupRequest(group=GROUP))).group
    assert (found.policy.attempts_max, sum(queue.lag for queue in found.queues)) == (3, 0)
