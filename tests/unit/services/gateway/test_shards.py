# SPDX-License-Identifier: Apache-2.0
"""The gateway before several shards: which shard gets a message or a handle, and the calls while a shard is away."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.commitlog.v1.topic_service_pb2 import CreateTopicRequest, QueueShare, Topic, TopicShare
from reput.delivery.v1.delivery_service_pb2 import ReceivedMessage, SettleEntry

from libs.formats.config.topic_share import Place, key_hash
from libs.formats.config.topic_share import TopicShare as TopicShareValue
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import PeerError
from libs.runtime.rpc.topic_shares import message_of, share_of
from libs.shards.change import begun, begun_from_whole, first_shares, next_step, split
from services.gateway.engine.shards.choice import AWAY_S, QueueChoice
from services.gateway.engine.shards.names import with_shard, without_shard
from services.gateway.engine.shards.traffic import ShardTraffic
from services.gateway.errors import Refused
from services.gateway.rpc.store.shards.routes import KEPT_S
from services.gateway.rpc.store.shards.sharded_delivery import ShardedDelivery
from services.gateway.rpc.store.shards.sharded_log import KEY, ShardedLog

AWAY = PeerError("log", "", "it does not listen", "UNAVAILABLE")


class Log:
    """The client of a shard's log, as far as ShardedLog uses it."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.stored: list[AppendMessage] = []
        self.error: PeerError | None = None
        self.asked_count = 0

    async def get(self, name: str) -> Topic:
        """See LogClient."""
        self.asked_count += 1
        self._check()
        if name not in self.topics:
            raise PeerError("log", "TOPIC_NOT_FOUND", "no topic", "NOT_FOUND")
        return self.topics[name]

    async def create(self, request: CreateTopicRequest) -> Topic:
        """See LogClient."""
        self._check()
        topic = Topic(name=request.name, write_queue_count=request.write_queue_count, is_writable=True)
        if request.HasField("share"):
            topic.share.CopyFrom(request.share)
        return self.topics.setdefault(request.name, topic)

    async def append(self, messages: Sequence[AppendMessage]) -> list[int]:
        """See LogClient. It refuses messages for other queues, as the log does."""
        self._check()
        topic = self.topics[messages[0].topic]
        own = {queue.queue_id for queue in topic.share.queues if not queue.is_sealed}
        if topic.HasField("share") and not all(one.HasField("queue_id") and one.queue_id in own for one in messages):
            raise PeerError("log", "QUEUE_NOT_HERE", "elsewhere", "FAILED_PRECONDITION")
        start = len(self.stored)
        self.stored += [AppendMessage.FromString(message.SerializeToString()) for message in messages]
        return list(range(start, start + len(messages)))

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


def shares_of(queue_count: int, names: Sequence[str]) -> dict[str, TopicShare]:
    """The shares of a new topic as messages."""
    return {
        name: TopicShare(
            version=share.version,
            queues=[
                QueueShare(queue_id=q.queue_id, first_hash=q.first_hash, last_hash=q.last_hash) for q in share.queues
            ],
        )
        for name, share in first_shares(names, queue_count).items()
    }


def sharded(names: Sequence[str] = ("a", "b", "c"), **options: Any) -> tuple[ShardedLog, dict[str, Log], ManualClock]:
    """A sharded log, its shards with the topic `t` of six queues, and the clock."""
    logs, clock = {name: Log() for name in names}, ManualClock()
    for name, share in shares_of(6, names).items():
        logs[name].topics["t"] = Topic(name="t", share=share, write_queue_count=6)
    made: Any = logs
    options = {"creates_topics": False, "new_topics_at": names} | options
    return ShardedLog(made, ShardTraffic(names, clock), clock, **options), logs, clock


def message(key: str = "", body: bytes = b"", topic: str = "t", **properties: str) -> AppendMessage:
    """A message, with a key if there is one."""
    return AppendMessage(topic=topic, body=body, properties={**({KEY: key} if key else {}), **properties})


def queue_of(key: str) -> int:
    """The queue of a key in six equal parts."""
    return key_hash(key) * 6 // 2**32


async def test_a_key_has_its_queue_and_answers_keep_their_order() -> None:
    """The messages of a request go to the shards of their keys; each answer is that of its message."""
    log, logs, _ = sharded()
    keys = [f"order-{number}" for number in range(50)]
    sent = await log.send([message(key, key.encode()) for key in keys])
    for key, place in zip(keys, sent, strict=True):
        stored = logs[place.shard].stored[place.queue_offset]
        assert (stored.body.decode(), stored.queue_id) == (key, queue_of(key))
    assert {place.shard for place in sent} == {"a", "b", "c"}


async def test_messages_without_a_key_go_to_all_shards() -> None:
    """Requests without keys are spread; the messages of a request share a queue, so that they are a single batch."""
    log, logs, _ = sharded()
    for _ in range(60):
        sent = await log.send([message(), message()])
        assert len({place.shard for place in sent}) == 1
    assert sum(len(one.stored) for one in logs.values()) == 120
    assert all(len(one.stored) >= 12 for one in logs.values()), "a third each, but for chance of 1 in 100,000"


async def test_a_shard_that_is_away_gets_no_messages_for_a_second() -> None:
    """After a failure the other shards get the messages without a key; keys of the shard that is away are refused."""
    log, logs, clock = sharded(("a", "b"))
    await log.send([message()])
    logs["b"].error = AWAY
    failures = 0
    for _ in range(40):
        try:
            await log.send([message()])
        except PeerError:
            failures += 1
    assert failures <= 1
    theirs = next(key for key in map(str, range(100)) if queue_of(key) >= 3)
    with pytest.raises(PeerError):
        await log.send([message(theirs)])
    logs["b"].error = None
    clock.advance(round(AWAY_S * 1_000) + 100)
    for _ in range(40):
        await log.send([message()])
    assert logs["b"].stored


async def test_a_route_is_kept_and_asked_for_again() -> None:
    """Shards are asked once in a while; a shard that is away keeps its share; a refused queue asks them at once."""
    log, logs, clock = sharded()
    for _ in range(5):
        await log.send([message("k")])
    assert [one.asked_count for one in logs.values()] == [1, 1, 1]
    logs["c"].error = AWAY
    clock.advance(round(KEPT_S * 1_000) + 1_000)
    ours = next(key for key in map(str, range(100)) if queue_of(key) < 4)
    await log.send([message(ours)])
    logs["c"].error = None
    place = Place("a", 0)
    logs["a"].topics["t"].share.CopyFrom(
        TopicShare(version=2, queues=[QueueShare(queue_id=1, first_hash=0, last_hash=9)])
    )
    logs["b"].topics["t"].share.CopyFrom(
        TopicShare(version=3, queues=[QueueShare(queue_id=2, first_hash=0, last_hash=2**32 - 1)])
    )
    moved = next(key for key in map(str, range(100)) if queue_of(key) == place.queue_id)
    (sent,) = await log.send([message(moved)])
    assert (sent.shard, logs["b"].stored[-1].queue_id) == ("b", 2)


async def test_a_store_that_became_a_shard_keeps_its_topics() -> None:
    """A topic without a share is at a single shard, whose log chooses the queues. At two shards it is refused."""
    log, logs, clock = sharded()
    logs["b"].topics["old"] = Topic(name="old", write_queue_count=4, read_queue_count=4)
    (sent,) = await log.send([message(topic="old")])
    assert (sent.shard, logs["b"].stored[0].HasField("queue_id")) == ("b", False)
    assert dict((await log.queues("old")).queue_ids) == {"b": range(4)}
    logs["c"].topics["old"] = Topic(name="old", write_queue_count=4)
    clock.advance(round(KEPT_S * 1_000) + 1_000)
    with pytest.raises(Refused, match="whole at the shards b, c"):
        await log.send([message(topic="old")])


def changing(logs: Mapping[str, Log]) -> dict[str, TopicShareValue]:
    """The shares of the topic `t` at all shards, as values."""
    return {name: share_of(one.topics["t"].share) for name, one in logs.items()}


async def test_a_key_waits_for_its_new_queue() -> None:
    """While a queue is split, the messages of its keys wait for the new queue; then they are stored there."""
    log, logs, _ = sharded()
    key = next(key for key in map(str, range(100)) if queue_of(key) == 2)
    await log.send([message(key)])
    begin = begun(changing(logs), split(changing(logs), 2, ["a", "c"]))
    logs[begin.shard].topics["t"].share.CopyFrom(message_of(begin.share))
    sealing = next_step(changing(logs))
    assert sealing is not None
    logs[sealing.shard].topics["t"].share.CopyFrom(message_of(sealing.share))
    sending = asyncio.create_task(log.send([message(key), message()]))
    await asyncio.sleep(0.1)
    assert not sending.done()
    while (step := next_step(changing(logs))) is not None:
        logs[step.shard].topics["t"].share.CopyFrom(message_of(step.share))
    sent = await sending
    assert logs[sent[0].shard].stored[sent[0].queue_offset].queue_id in {6, 7}
    queues = await log.queues("t")
    assert (set(queues.sealed), sorted(id_ for ids in queues.queue_ids.values() for id_ in ids)) == (
        {2},
        list(range(8)),
    )


async def test_a_topic_that_is_spread_while_messages_come() -> None:
    """A gateway that knows a topic at a single shard sends to its new queues as soon as the shard refuses."""
    log, logs, _ = sharded()
    logs["b"].topics["t2"] = Topic(name="t2", write_queue_count=4, read_queue_count=4)
    await log.send([message(topic="t2")])
    begin = begun_from_whole("b", 4, ["a", "b", "c"], 3)
    shares = {begin.shard: begin.share}
    while (step := next_step(shares)) is not None:
        shares[step.shard] = step.share
    for name, share in shares.items():
        logs[name].topics["t2"] = Topic(name="t2", write_queue_count=7, share=message_of(share))
    (sent,) = await log.send([message("k", topic="t2")])
    assert logs[sent.shard].stored[sent.queue_offset].queue_id >= 4


async def test_a_topic_that_is_not_known() -> None:
    """It is not there only if all shards say so. With `creates_topics` it is made on all of them that take topics."""
    log, logs, _ = sharded()
    with pytest.raises(PeerError) as caught:
        await log.send([message(topic="new")])
    assert caught.value.reason == "TOPIC_NOT_FOUND"
    logs["a"].error = AWAY
    with pytest.raises(PeerError) as caught:
        await log.send([message(topic="new")])
    assert caught.value.code == "UNAVAILABLE"
    making, logs, _ = sharded(creates_topics=True)
    await making.send([message(topic="new")])
    ids = [queue.queue_id for one in logs.values() for queue in one.topics["new"].share.queues]
    assert sorted(ids) == list(range(12))
    some, logs, _ = sharded(creates_topics=True, new_topics_at=["a", "c"])
    await some.send([message(topic="new")])
    assert [name for name, one in logs.items() if "new" in one.topics] == ["a", "c"]


async def test_a_message_that_is_sent_once_comes_to_the_same_shard_again() -> None:
    """With `is_once` the id of a message decides about its queue, as a key does."""
    log, _, _ = sharded(is_once=True)
    for number in range(20):
        one = message(UNIQ_KEY=f"id-{number}")
        places = [(await log.send([one]))[0].shard for _ in range(3)]
        assert len(set(places)) == 1


def test_the_queue_with_fewer_messages_under_way() -> None:
    """Of two queues at random the queue with fewer messages under way is chosen."""
    choice = QueueChoice(ManualClock(), random.Random(7))
    busy, free = Place("a", 0), Place("b", 1)
    choice.begin("t", busy, 5)
    assert {choice.choose("t", [busy, free]) for _ in range(20)} == {free}
    choice.end("t", busy, 5)
    assert {choice.choose("t", [busy, free]) for _ in range(50)} == {busy, free}


@pytest.mark.parametrize("text", ["", ":", "x", "a", "d:handle", ":a:b", "A:1"])
def test_handles_that_name_no_shard(text: str) -> None:
    """A text without the name of a shard has none, and stays as it is."""
    assert without_shard(text, {"a", "b"}) == ("", text)
    assert without_shard(with_shard("a", text), {"a", "b"}) == ("a", text)


class Delivery:
    """The client of a shard's Delivery, as far as ShardedDelivery uses it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: list[str] = []
        self.settled: list[str] = []
        self.error: PeerError | None = None
        self.waits: list[float] = []

    async def receive(self, _group: str, _topic: str, *, wait_s: float, **_: Any) -> list[ReceivedMessage]:
        """See DeliveryClient."""
        self.waits.append(wait_s)
        await asyncio.sleep(0)
        self._check()
        found, self.waiting = self.waiting, []
        return [ReceivedMessage(handle=handle) for handle in found]

    async def settle(self, entries: Sequence[SettleEntry]) -> list[str]:
        """See DeliveryClient."""
        self._check()
        self.settled += [entry.handle for entry in entries]
        return [f"next-{entry.handle}" if entry.HasField("extend") else "" for entry in entries]

    async def ack(self, handles: Sequence[str]) -> list[str]:
        """See DeliveryClient."""
        return await self.settle([SettleEntry(handle=handle) for handle in handles])

    async def renew(self, handles: Sequence[str], _: float) -> Mapping[str, bool]:
        """See DeliveryClient."""
        self._check()
        return dict.fromkeys(handles, True)

    async def cancel(self, _: str, message_id: str, *, broker: str = "") -> None:
        """See DeliveryClient."""
        assert broker == ""
        self._check()
        if message_id not in self.waiting:
            raise PeerError("delivery", "DELAYED_NOT_FOUND", "no such message", "NOT_FOUND")

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


def deliveries() -> tuple[ShardedDelivery, dict[str, Delivery]]:
    """Three shards."""
    found = {name: Delivery(name) for name in "abc"}
    made: Any = found
    return ShardedDelivery(made, ManualClock()), found


RECEIVE: dict[str, Any] = {
    "count": 10, "invisible_ms": None, "tags": "*", "where": "", "wait_s": 0.0, "attempt_id": "",
}  # fmt: skip


async def test_handles_come_back_to_their_shards() -> None:
    """Each message is settled at its shard, outcomes have the order of the entries, and unknown handles are refused."""
    delivery, shards = deliveries()
    shards["b"].waiting = ["1", "2"]
    received = await delivery.receive("g", "t", **RECEIVE)
    assert [one.handle for one in received] == ["b:1", "b:2"]
    entries = [SettleEntry(handle="c:9"), SettleEntry(handle="b:1"), SettleEntry(handle="?"), SettleEntry(handle="b:2")]
    entries[1].extend.SetInParent()
    outcomes = await delivery.settle(entries)
    assert outcomes[:2] == ["", "b:next-1"]
    assert outcomes[3] == ""
    assert isinstance(outcomes[2], Refused)
    assert (shards["b"].settled, shards["c"].settled, shards["a"].settled) == (["1", "2"], ["9"], [])


async def test_a_shard_that_is_away_fails_its_own_messages() -> None:
    """Acknowledgements of other shards take effect, and its own have its error. Receives go on."""
    delivery, shards = deliveries()
    shards["a"].error = AWAY
    assert await delivery.ack(["a:1", "b:2"]) == [AWAY, ""]
    shards["c"].waiting = ["3"]
    assert [one.handle for one in await delivery.receive("g", "t", **RECEIVE)] == ["c:3"]
    with pytest.raises(PeerError):
        await delivery.renew(["a:1", "b:2"], 60.0)
    assert await delivery.renew(["b:2", "?"], 60.0) == {"b:2": True, "?": False}
    for one in shards.values():
        one.error = AWAY
    with pytest.raises(PeerError):
        await delivery.receive("g", "t", **RECEIVE)


async def test_a_push_consumer_asks_a_single_shard() -> None:
    """A call for a shard waits there for the whole time. A call without a shard asks all, first without a wait."""
    delivery, shards = deliveries()
    await delivery.receive("g", "t", **RECEIVE | {"wait_s": 20.0}, broker="b")
    assert [one.waits for one in shards.values()] == [[], [20.0], []]
    await delivery.receive("g", "t", **RECEIVE)
    assert [one.waits for one in shards.values()] == [[0.0], [20.0, 0.0], [0.0]]


async def test_receives_at_the_same_time_ask_all_shards_each() -> None:
    """A receive finds the messages of any shard, however many others ask at the same time."""
    delivery, shards = deliveries()
    for name, one in shards.items():
        one.waiting = [name]
    found = await asyncio.gather(*(delivery.receive("g", "t", **RECEIVE) for _ in range(7)))
    assert sorted(message.handle for messages in found for message in messages) == ["a:a", "b:b", "c:c"]
    assert all(len(one.waits) >= 5 for one in shards.values()), "the receives without a message asked all shards"


async def test_shards_that_are_away_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A line is logged when a shard takes no messages, and when it takes them again; figures count both."""
    clock = ManualClock()
    traffic = ShardTraffic(["a", "b"], clock)
    traffic.stored("b", 1)
    traffic.stored("a", 2)
    with caplog.at_level("INFO", logger="libs.machine.trouble"):
        for _ in range(3):
            traffic.failed("b", AWAY)
        assert [figures.is_away for figures in traffic.statistics().values()] == [False, True]
        traffic.stored("b", 4)
    first, last = [record.getMessage() for record in caplog.records]
    assert first.startswith("shard b takes no messages: log: it does not listen")
    assert "sending to shard b" in last
    one = traffic.statistics()["b",]
    assert (one.sent_messages_total, one.failed_batches_total, one.is_away) == (5, 3, False)


async def test_a_recall_finds_its_shard() -> None:
    """A message is not found only if all shards say so: a shard that is away may have it."""
    delivery, shards = deliveries()
    shards["c"].waiting = ["id"]
    await delivery.cancel("t", "id")
    await delivery.cancel("t", "id", broker="c")
    with pytest.raises(PeerError, match="no such message"):
        await delivery.cancel("t", "other", broker="c")
    shards["b"].error = AWAY
    with pytest.raises(PeerError, match="does not listen"):
        await delivery.cancel("t", "other")
