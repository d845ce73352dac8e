# SPDX-License-Identifier: Apache-2.0
"""A call that Delivery, the gateway, the Indexer or the topics answer as done is on the disks of the in-sync set.

The log is a synchronous master with a follower, whose acknowledgements a test holds back.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2, topic_service_pb2, topic_service_pb2_grpc

from libs.formats.records.delivery_record import Place as QueuePlace
from libs.formats.records.delivery_record import Settled
from libs.formats.records.state_record import StateRecord
from libs.machine.testing.manual_clock import ManualClock
from libs.requests import durable
from libs.requests.errors import NotDurableYet, PeerError
from libs.runtime.peer.calls import error_info
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from services.commitlog.engine.open_log import OpenLog
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.journal.store_time import StoreTime
from services.delivery.errors import JournalNotDurable
from services.delivery.rpc.log.log_client import LogClient as DeliveryLog
from services.gateway.errors import Refused
from services.gateway.rpc.statuses import status_of
from services.gateway.rpc.store.log_client import LogClient as GatewayLog
from services.gateway.rpc.wire import messaging_pb2 as wire_pb
from services.indexer.rpc.log.appender import LogAppender
from tests.support.calls import connection_to, servicers_of
from tests.support.commitlog import Machine, make_config
from tests.support.patience import eventually
from tests.support.replication import Wire

EVENT = Settled(QueuePlace("g", "t", 0), (1,))
MESSAGE = append_service_pb2.AppendMessage(topic="orders", body=b"one", properties={"UNIQ_KEY": "ID1"})


@dataclass
class Store:
    """Both logs."""

    leader: OpenLog
    follower: OpenLog
    wire: Wire
    log: Connection

    def hold(self) -> None:
        """Hold back the follower's acknowledgements."""
        self.wire.can_acknowledge.clear()

    def go_on(self) -> None:
        """Let the follower's acknowledgements through."""
        self.wire.can_acknowledge.set()

    @property
    def repeated_count(self) -> int:
        """The number of repeated batches."""
        return self.leader.pipeline.repeated_batch_count

    def is_replicated(self) -> bool:
        """Whether the follower has all bytes of the leader on its disk."""
        return self.follower.marks.flushed.value == self.leader.marks.wrote.value


@contextlib.asynccontextmanager
async def store(role: str = "sync_master") -> AsyncIterator[Store]:
    """A leader and a follower that is in sync."""
    one, other = Machine(role=role, replicate_timeout_ms=20), Machine()
    leader = await one.start()
    wire = Wire(leader)
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b", reconnect_ms_max=100)
    servicers = servicers_of(leader, make_config())
    try:
        await eventually(lambda: leader.in_sync is not None and leader.in_sync.set.live_count == 2)
        yield Store(leader, follower, wire, connection_to(lambda: servicers))
    finally:
        wire.can_acknowledge.set()
        await other.stop(follower)
        await one.stop(leader)
    assert one.failures == other.failures == []


async def not_done_before(store: Store, call: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call while the follower's acknowledgements are held.

    The call is answered only after the follower has its data.
    """
    store.hold()
    count = store.repeated_count
    calling = asyncio.ensure_future(call())
    await eventually(lambda: store.repeated_count > count + 1 or calling.done())
    assert not calling.done()
    store.go_on()
    answer = await calling
    assert store.is_replicated()
    return answer


async def test_deliverys_journal() -> None:
    """An event counts as written when the in-sync set has its record; and each record is stored once."""
    async with store() as one:
        log = DeliveryLog(one.log)
        journal = Journal(log, "o" * 32, StoreTime(ManualClock()))
        await journal.begin(EVENT)
        written = await not_done_before(one, lambda: journal.write([EVENT], is_safe=True))
        assert written.queue_offset == 1
        await journal.write([EVENT], is_safe=True)
        assert await log.next_number() == 3
        await journal.close()


async def test_deliverys_journal_when_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal fails, so that its records are read anew; all waiting writers get JournalNotDurable."""
    async with store() as one:
        journal = Journal(DeliveryLog(one.log), "o" * 32, StoreTime(ManualClock()))
        await journal.begin(EVENT)
        one.hold()
        monkeypatch.setitem(durable.until_durable.__kwdefaults__, "within_s", 0.0)
        for written in (journal.write([EVENT], is_safe=True), journal.write([EVENT], is_safe=False)):
            with pytest.raises(JournalNotDurable):
                await written
        assert isinstance(journal.failure, JournalNotDurable)


async def test_a_journal_that_closes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop does not wait for an in-sync set that does not answer."""
    monkeypatch.setattr("services.delivery.engine.journal.journal.CLOSE_S", 0.0)
    async with store() as one:
        journal = Journal(DeliveryLog(one.log), "o" * 32, StoreTime(ManualClock()))
        await journal.begin(EVENT)
        one.hold()
        written = journal.write([EVENT], is_safe=True)
        await eventually(lambda: one.repeated_count > 0)
        await journal.close()
        with pytest.raises(Exception, match="closed before its last record"):
            await written


async def test_events_that_wait_for_nothing() -> None:
    """The event of a handed-out message counts as written as soon as the log has it."""
    async with store() as one:
        journal = Journal(DeliveryLog(one.log), "o" * 32, StoreTime(ManualClock()))
        await journal.begin(EVENT)
        one.hold()
        assert (await journal.write([EVENT], is_safe=False)).queue_offset == 1
        await journal.close()


async def test_an_asynchronous_master_answers_at_once() -> None:
    """An asynchronous master promises only its own disk."""
    async with store("async_master") as one:
        one.hold()
        journal = Journal(DeliveryLog(one.log), "o" * 32, StoreTime(ManualClock()))
        await journal.begin(EVENT)
        await LogAppender(one.log, lambda _: one.log).share([StateRecord(origin="o" * 32, number=1)])
        await GatewayLog(LeaderClient("commitlog", [one.log]), ManualClock(), creates_topics=True).append([MESSAGE])
        assert (await made(one, "audit")).name == "audit"
        await journal.close()


async def test_a_message_of_the_gateway() -> None:
    """The producer gets RocketMQ's code for it, and sends the message again."""
    async with store() as one:
        log = GatewayLog(LeaderClient("commitlog", [one.log]), ManualClock(), creates_topics=True)
        assert list(await log.append([MESSAGE])) == [0]
        one.hold()
        with pytest.raises(Refused) as refused:
            await log.append([MESSAGE])
        assert status_of(refused.value).code == wire_pb.CODE_SLAVE_PERSISTENCE_TIMEOUT
        assert one.repeated_count == 0
        assert status_of(PeerError("delivery", "NOT_DURABLE_YET", "")).code == wire_pb.CODE_SLAVE_PERSISTENCE_TIMEOUT


async def test_a_message_of_the_gateway_that_is_known_by_its_id() -> None:
    """The gateway itself sends the message again, so that its producer gets a success for a single stored message."""
    async with store() as one:
        log = GatewayLog(LeaderClient("commitlog", [one.log]), ManualClock(), creates_topics=True, is_once=True)
        assert list(await not_done_before(one, lambda: log.append([MESSAGE]))) == [0]


async def test_shared_state_of_an_indexer() -> None:
    """Reset offsets are in the log of the in-sync set when the call is answered; each record is stored once."""
    async with store() as one:
        appender = LogAppender(one.log, lambda _: one.log)
        ends = [one.leader.marks.wrote.value]
        await not_done_before(one, lambda: appender.share([StateRecord(origin="o" * 32, number=1)]))
        ends.append(one.leader.marks.wrote.value)
        await appender.share([StateRecord(origin="o" * 32, number=2)])
        ends.append(one.leader.marks.wrote.value)
        assert ends[1] - ends[0] == ends[2] - ends[1] > 0


async def test_shared_state_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was not answered as done is sent again, by a writer that begins anew."""
    async with store() as one:
        appender = LogAppender(one.log, lambda _: one.log)
        await appender.share([StateRecord(origin="o" * 32, number=1)])
        one.hold()
        monkeypatch.setitem(durable.until_durable.__kwdefaults__, "within_s", 0.0)
        with pytest.raises(NotDurableYet):
            await appender.share([StateRecord(origin="o" * 32, number=2)])
        monkeypatch.undo()
        one.go_on()
        await appender.share([StateRecord(origin="o" * 32, number=2)])
        assert one.is_replicated()


def topics_of(one: Store) -> Any:
    """The service of topics."""
    return topic_service_pb2_grpc.TopicServiceStub(one.log.channel)


async def made(one: Store, name: str, **given: int) -> topic_service_pb2.Topic:
    """Make a topic."""
    request = topic_service_pb2.CreateTopicRequest(name=name, **given)
    topic: topic_service_pb2.Topic = (await topics_of(one).CreateTopic(request)).topic
    return topic


async def reason_of(call: Awaitable[Any]) -> str:
    """The reason for which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error_info(error.value).reason


async def test_topics_are_there_when_that_is_answered() -> None:
    """A topic that is created, changed or deleted is so on the follower's disk when the call is answered."""
    async with store() as one:
        await made(one, "audit", write_queue_count=3)
        assert one.follower.topics.get("audit").write_queue_count == 3
        request = topic_service_pb2.UpdateTopicRequest(name="audit", write_queue_count=5)
        await topics_of(one).UpdateTopic(request)
        assert one.follower.topics.get("audit").write_queue_count == 5
        await topics_of(one).DeleteTopic(topic_service_pb2.DeleteTopicRequest(name="audit"))
        assert one.follower.topics.find("audit") is None


async def test_a_change_of_topics_that_takes_too_long_may_be_repeated() -> None:
    """The caller is told that the change may exist, and gets the first answer when it asks again."""
    async with store() as one:
        topics = topics_of(one)
        update = topic_service_pb2.UpdateTopicRequest(name="audit", write_queue_count=9)
        delete = topic_service_pb2.DeleteTopicRequest(name="audit")
        calls = lambda: made(one, "audit"), lambda: topics.UpdateTopic(update), lambda: topics.DeleteTopic(delete)
        for call in calls:
            one.hold()
            assert await reason_of(call()) == await reason_of(call()) == "NOT_DURABLE_YET"
            one.go_on()
            await call()
            assert one.follower.topics.find("audit") == one.leader.topics.find("audit")
        assert await reason_of(topics.DeleteTopic(delete)) == "TOPIC_NOT_FOUND"


async def test_a_topic_of_somebody_else() -> None:
    """TopicExists is answered once the in-sync set has the topic, and success only to the caller that created it."""
    async with store() as one:
        one.hold()
        assert await reason_of(made(one, "audit", write_queue_count=3)) == "NOT_DURABLE_YET"
        assert await reason_of(made(one, "audit", write_queue_count=4)) == "NOT_DURABLE_YET"
        one.go_on()
        assert await reason_of(made(one, "audit", write_queue_count=4)) == "TOPIC_EXISTS"


async def test_too_few_for_a_change_of_topics() -> None:
    """With too few members a change of topics is refused, and nothing changes."""
    async with store() as one:
        one.wire.leader = None
        await eventually(lambda: one.leader.in_sync is not None and one.leader.in_sync.set.live_count == 1)
        assert await reason_of(made(one, "audit")) == "NOT_ENOUGH_REPLICAS"
        assert one.leader.topics.find("audit") is None
