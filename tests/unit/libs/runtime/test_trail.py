# SPDX-License-Identifier: Apache-2.0
"""Trail: the log lines of calls that change topics, groups or indexes, and of refused calls."""

import logging

import grpc
import pytest
from reput.commitlog.v1 import topic_service_pb2
from reput.delivery.v1 import group_service_pb2
from reput.indexer.v1 import index_service_pb2

from libs.runtime.trust import trail
from libs.runtime.trust.roles import ROLES, Role
from libs.runtime.trust.tokens import TokenFile, ensure_local_token
from tests.unit.libs.runtime.servers import DELETE_TOPIC, GET_STATUS, serving

DELETE_GROUP = "/reput.delivery.v1.GroupService/DeleteGroup"
RESET_GROUP = "/reput.delivery.v1.GroupService/ResetGroup"
PEER = "ipv4:10.0.0.7:4711"


class Time:
    """Monotonic time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_line_says_what_was_asked_from_where_and_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Names in a request stay within their line, with any characters."""
    caplog.set_level(logging.INFO)
    told = trail.Trail()
    told.ended(DELETE_TOPIC, topic_service_pb2.DeleteTopicRequest(name="orders"), peer=PEER, outcome="OK")
    request = group_service_pb2.DeleteGroupRequest(group="billing\nforged")
    told.ended(DELETE_GROUP, request, peer=PEER, outcome="NOT_FOUND: no such group")
    assert caplog.messages == [
        f'TopicService/DeleteTopic [name: "orders"], asked by {PEER} as operator: OK',
        f'GroupService/DeleteGroup [group: "billing\\nforged"], asked by {PEER} as client: NOT_FOUND: no such group',
    ]


def test_what_changes_nothing_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """A dry run and a read are not logged."""
    caplog.set_level(logging.INFO)
    told = trail.Trail()
    told.ended(RESET_GROUP, group_service_pb2.ResetGroupRequest(dry_run=True), peer=PEER, outcome="OK")
    told.ended(GET_STATUS, index_service_pb2.GetStatusRequest(), peer=PEER, outcome="OK")
    assert not caplog.messages


def test_a_flood_of_clients_is_bounded_and_leaves_operators_their_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Lines of clients are bounded and operators' are not; the next line has the number of lines left out."""
    caplog.set_level(logging.INFO)
    time = Time()
    told = trail.Trail(time)
    for _ in range(10 * trail.LINE_COUNT_MAX):
        told.ended(DELETE_GROUP, group_service_pb2.DeleteGroupRequest(group="x" * 1000), peer=PEER, outcome="y" * 1000)
    assert len(caplog.messages) == trail.LINE_COUNT_MAX
    assert max(map(len, caplog.messages)) < 3 * trail.TEXT_LENGTH_MAX
    told.ended(DELETE_TOPIC, topic_service_pb2.DeleteTopicRequest(name="orders"), peer=PEER, outcome="OK")
    assert caplog.messages[-1].endswith("as operator: OK")
    time.now_s += trail.LINE_AGAIN_S
    told.ended(DELETE_GROUP, group_service_pb2.DeleteGroupRequest(group="g"), peer=PEER, outcome="OK")
    assert caplog.messages[-1].endswith(f"OK ({9 * trail.LINE_COUNT_MAX} lines before it were left out)")


def test_refusals_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A caller without a token costs ten lines, and then a line every ten seconds."""
    time = Time()
    told = trail.Trail(time)
    for _ in range(100):
        told.refused(DELETE_TOPIC, peer=PEER, reason="UNAUTHENTICATED")
    assert caplog.messages == [f"TopicService/DeleteTopic, asked by {PEER}: refused, UNAUTHENTICATED"] * 10
    time.now_s += trail.REFUSAL_AGAIN_S
    told.refused(DELETE_TOPIC, peer=PEER, reason="PERMISSION_DENIED")
    assert caplog.messages[-1].endswith("PERMISSION_DENIED (90 lines before it were left out)")


def test_each_call_of_operators_is_told() -> None:
    """Each call of operators is logged, some of clients, and none of services."""
    assert {path for path, role in ROLES.items() if role is Role.OPERATOR} <= trail.TOLD
    assert {ROLES[path] for path in trail.TOLD} == {Role.OPERATOR, Role.CLIENT}


@pytest.mark.usefixtures("each_front")
async def test_a_server_tells_calls_and_refusals(caplog: pytest.LogCaptureFixture) -> None:
    """A server logs calls and refusals with the address of the caller, on either front."""
    caplog.set_level(logging.INFO, "libs.runtime.trust.trail")

    token = (("authorization", f"Bearer {TokenFile('token', ensure_local_token()).shown}"),)
    request = topic_service_pb2.DeleteTopicRequest(name="orders").SerializeToString()
    async with serving() as served:
        with pytest.raises(grpc.aio.AioRpcError):
            await served.call(DELETE_TOPIC, request, metadata=())
        await served.call(DELETE_TOPIC, request, metadata=token)
    refused, deleted = caplog.messages
    assert refused.startswith("TopicService/DeleteTopic, asked by ipv4:127.0.0.1:")
    assert refused.endswith(": refused, PERMISSION_DENIED")
    assert deleted.startswith('TopicService/DeleteTopic [name: "orders"], asked by ipv4:127.0.0.1:')
    assert deleted.endswith(" as operator: OK")
