# SPDX-License-Identifier: Apache-2.0
"""ConnectionService: the open connections of a server, with texts that a caller chose."""

import asyncio
from types import SimpleNamespace

import grpc
import pytest
from reput.common.v1 import connection_service_pb2 as pb

from libs.runtime.rpc.connection_servicer import GROUP_COUNT_MAX, TEXT_SIZE_MAX, note_group
from tests.support.patience import LIMIT_S
from tests.support.trusted import trusted
from tests.unit.libs.runtime.servers import APPEND, DISPATCH, GET_STATUS, Served, serving

LIST = "/reput.common.v1.ConnectionService/ListConnections"


async def listed(served: Served, page_size: int = 0, after_number: int = 0) -> pb.ListConnectionsResponse:
    request = pb.ListConnectionsRequest(page_size=page_size, after_number=after_number)
    return pb.ListConnectionsResponse.FromString(await served.call(LIST, request.SerializeToString()))


async def test_a_connection_has_its_callers_client_and_calls() -> None:
    """A caller sees itself: the address, the user-agent, the bytes, the number of calls and those that run."""
    async with serving() as served:
        stream = served.channel.unary_stream(DISPATCH)(b"")
        await stream.read()
        for _ in range(3):
            await served.call(APPEND, b"x" * 10_000)
        answer = await listed(served)
        (connection,) = answer.connections
        assert (answer.connection_count, answer.has_more, connection.number) == (1, False, 1)
        assert connection.peer.startswith(("ipv4:127.0.0.1:", "ipv6:[::1]:"))
        assert connection.user_agent.startswith("grpc-python-asyncio/")
        assert connection.subject == "operator", "the test has the token of this machine's user"
        assert connection.call_count == 5
        assert {calls.method: calls.call_count for calls in connection.running} == {DISPATCH: 1, LIST: 1}
        assert connection.received_bytes > 30_000 <= connection.sent_bytes
        assert connection.opened_time.ToMilliseconds() <= connection.received_time.ToMilliseconds()
        stream.cancel()


async def test_hostile_texts_are_cut_off() -> None:
    """A caller chooses its user-agent, its id and its version, of any length."""
    long = "x" * 2_000
    async with serving() as served:
        metadata = (("x-mq-client-id", long), ("x-mq-language", long), ("x-mq-client-version", long))
        options = (("grpc.primary_user_agent", long),)
        async with trusted(grpc.aio.insecure_channel(f"localhost:{served.server.port}", options=options)) as channel:
            await channel.unary_unary(GET_STATUS)(b"", metadata=metadata, timeout=LIMIT_S)
            connection = (await listed(served)).connections[0]
            assert connection.user_agent == connection.client_id == connection.client_version == "x" * TEXT_SIZE_MAX


async def test_a_client_of_rocketmq_is_named() -> None:
    """Its id, language and version are in the metadata of its calls."""
    async with serving() as served:
        metadata = (("x-mq-client-id", "h@1@0"), ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.0.7"))
        await served.call(GET_STATUS, metadata=metadata)
        channel = grpc.aio.insecure_channel(
            f"localhost:{served.server.port}", options=(("grpc.use_local_subchannel_pool", 1),)
        )
        async with trusted(channel) as other:
            request = pb.ListConnectionsRequest().SerializeToString()
            answer = pb.ListConnectionsResponse.FromString(await other.unary_unary(LIST)(request, timeout=LIMIT_S))
        first, second = answer.connections
        assert (first.client_id, first.client_version) == ("h@1@0", "JAVA 5.0.7")
        assert (second.client_id, second.client_version) == ("", "")


async def test_a_connection_without_a_call_has_no_caller() -> None:
    """A port scan opens connections that send nothing."""
    async with serving() as served:
        _, writer = await asyncio.open_connection("localhost", served.server.port)
        silent = None
        async with asyncio.timeout(LIMIT_S):
            while silent is None:
                found = (await listed(served)).connections
                silent = next((each for each in found if not each.call_count), None)
        assert (silent.subject, silent.user_agent, list(silent.running)) == ("", "", [])
        writer.close()


async def test_pages_have_each_connection_once() -> None:
    """Pages go on behind a number, and say whether more follow."""
    async with serving() as served:
        writers = [(await asyncio.open_connection("localhost", served.server.port))[1] for _ in range(9)]
        async with asyncio.timeout(LIMIT_S):
            while (await listed(served)).connection_count < 10:
                pass
        numbers: list[int] = []
        answer = await listed(served, page_size=4)
        while True:
            numbers += [connection.number for connection in answer.connections]
            assert len(answer.connections) <= 4
            if not answer.has_more:
                break
            answer = await listed(served, 4, numbers[-1])
        assert numbers == list(range(1, 11))
        for writer in writers:
            writer.close()


@pytest.mark.parametrize(("field", "value"), [("page_size", -1), ("after_number", -1)])
async def test_wrong_pages_are_refused(field: str, value: int) -> None:
    """A negative size or number names the field."""
    async with serving() as served:
        with pytest.raises(grpc.aio.AioRpcError, match=field) as caught:
            await listed(served, **{field: value})
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_last_groups_are_kept() -> None:
    """A caller that names many groups keeps few of them here, the last."""
    context = SimpleNamespace(connection=SimpleNamespace(groups={}))
    for number in range(1_000):
        note_group(context, f"group{number}")
        note_group(context, f"group{number}")
    assert list(context.connection.groups) == [f"group{number}" for number in range(1_000 - GROUP_COUNT_MAX, 1_000)]
    note_group(SimpleNamespace(), "a context of gRPC's own server")
