# SPDX-License-Identifier: Apache-2.0
"""The gateway's calls to a service of several members: which member gets a call, and what its failure says."""

import asyncio
from typing import Any

import pytest
from reput.commitlog.v1 import topic_service_pb2 as pb
from reput.commitlog.v1 import topic_service_pb2_grpc

from libs.requests.errors import BadArgument, DependencyUnavailable, PeerError, Stopping
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from services.commitlog.errors import NotLeader, TopicExists
from services.gateway.rpc.statuses import status_of
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support.calls import connection_to
from tests.support.patience import eventually

TOPICS = topic_service_pb2_grpc.TopicServiceStub
REQUEST = pb.GetTopicRequest(name="orders")


class Member:
    """A member that counts its calls, and answers or fails as a test says."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.call_count = 0
        self.is_there = True
        self.gate = asyncio.Event()
        self.gate.set()

    async def GetTopic(self, *_: object) -> pb.GetTopicResponse:  # noqa: N802 - gRPC's name
        """Answer, or fail."""
        self.call_count += 1
        failure = self.failure
        await self.gate.wait()
        if failure is not None:
            raise failure
        return pb.GetTopicResponse()

    def connection(self, timeout_s: float = 10.0) -> Connection:
        """Return a connection to the member."""
        services = {"reput.commitlog.v1.TopicService": self}
        return connection_to(lambda: services if self.is_there else {}, timeout_s)


async def ask(leading: LeaderClient) -> Any:
    """Make a call."""
    return await leading.call(TOPICS, "GetTopic", REQUEST)


async def refusal_of(leading: LeaderClient) -> PeerError:
    """Return why a call is refused."""
    with pytest.raises(PeerError) as caught:
        await ask(leading)
    return caught.value


@pytest.mark.parametrize("failure", [NotLeader("elsewhere"), Stopping()])
async def test_a_member_that_does_not_lead(failure: Exception) -> None:
    """The next member gets the same call, and all calls after it."""
    follower, leader = Member(failure), Member()
    leading = LeaderClient("commitlog", [follower.connection(), leader.connection()])
    await ask(leading)
    await ask(leading)
    assert (follower.call_count, leader.call_count) == (1, 2)


async def test_no_member_leads() -> None:
    """Each is asked once, and the caller hears the last refusal."""
    members = [Member(NotLeader()) for _ in range(3)]
    error = await refusal_of(LeaderClient("commitlog", [one.connection() for one in members]))
    assert [one.call_count for one in members] == [1, 1, 1]
    assert (error.reason, str(error)) == ("NOT_LEADER", f"commitlog: {NotLeader()}")


async def test_a_member_without_an_answer_may_have_done_the_call() -> None:
    """The caller hears that, and the next call goes to the next member."""
    for silent in (Member(), Member(DependencyUnavailable("commitlog", "away"))):
        silent.is_there = silent.failure is not None
        other = Member()
        leading = LeaderClient("commitlog", [silent.connection(), other.connection()])
        error = await refusal_of(leading)
        assert status_of(error).code == wire.CODE_HA_NOT_AVAILABLE
        assert other.call_count == 0
        await ask(leading)
        assert other.call_count == 1


async def test_calls_that_fail_together_move_on_once() -> None:
    """Otherwise two of them would skip the leader."""
    first, leader, third = Member(NotLeader()), Member(), Member(NotLeader())
    first.gate.clear()
    leading = LeaderClient("commitlog", [one.connection() for one in (first, leader, third)])
    calls = [asyncio.ensure_future(ask(leading)) for _ in range(2)]
    await eventually(lambda: first.call_count == 2)
    first.gate.set()
    await asyncio.gather(*calls)
    assert (leader.call_count, third.call_count) == (2, 0)


async def test_another_refusal_keeps_the_member() -> None:
    """It has the service's name before the text, the reason, and the field at fault."""
    leader, other = Member(TopicExists("orders")), Member()
    leading = LeaderClient("commitlog", [leader.connection(), other.connection()])
    error = await refusal_of(leading)
    assert (error.reason, str(error)) == ("TOPIC_EXISTS", "commitlog: topic orders exists")
    leader.failure = BadArgument("bad", field="group")
    assert status_of(await refusal_of(leading)).code == wire.CODE_ILLEGAL_CONSUMER_GROUP
    assert other.call_count == 0


async def test_a_late_answer() -> None:
    """The code says that it was late, and the next call goes to the next member."""
    late, other = Member(), Member()
    late.gate.clear()
    leading = LeaderClient("commitlog", [late.connection(0.01), other.connection()])
    error = await refusal_of(leading)
    assert status_of(error).code == wire.CODE_PROXY_TIMEOUT
    assert str(error) == "commitlog: deadline exceeded"
    await ask(leading)
    assert other.call_count == 1
