# SPDX-License-Identifier: Apache-2.0
"""Only the leading log reports a missing topic: a following log may not have it yet."""

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2, topic_service_pb2, topic_service_pb2_grpc

from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import PeerError
from libs.runtime.peer.calls import error_info
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from services.commitlog.engine.open_log import OpenLog
from services.gateway.rpc.store.log_client import LogClient
from tests.support.calls import connection_to, servicers_of
from tests.support.commitlog import Machine, make_config
from tests.support.replication import Wire

MESSAGE = append_service_pb2.AppendMessage(topic="orders", body=b"one", properties={"UNIQ_KEY": "ID1"})


def connect(log: OpenLog) -> Connection:
    """A connection to a log."""
    return connection_to(lambda: servicers_of(log, make_config()))


async def test_a_log_that_follows_names_the_leader() -> None:
    """A following log names the leader, and does not report a missing topic.

    On a new disk every topic is missing.
    """
    wire, other = Wire(), Machine()
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b", reconnect_ms_max=100)
    topics = topic_service_pb2_grpc.TopicServiceStub(connect(follower).channel)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await topics.GetTopic(topic_service_pb2.GetTopicRequest(name="orders"))
    assert error_info(failure.value).reason == "NOT_LEADER"
    await other.stop(follower)


async def test_the_gateway_asks_the_log_that_leads() -> None:
    """The gateway asks the leading log, even if a follower answered last, for an existing and for a missing topic."""
    one, wire, other = Machine(), Wire(), Machine()
    leader = await one.start()
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b", reconnect_ms_max=100)
    await leader.topic_changes.create("orders", write_queue_count=1)
    log = LogClient(
        LeaderClient("commitlog", [connect(follower), connect(leader)]), ManualClock(), creates_topics=False
    )
    assert list(await log.append([MESSAGE])) == [0]
    missing = append_service_pb2.AppendMessage(topic="missing", body=b"one", properties={"UNIQ_KEY": "ID2"})
    log = LogClient(
        LeaderClient("commitlog", [connect(follower), connect(leader)]), ManualClock(), creates_topics=False
    )
    with pytest.raises(PeerError) as refusal:
        await log.append([missing])
    assert refusal.value.reason == "TOPIC_NOT_FOUND"
    await other.stop(follower)
    await one.stop(leader)
