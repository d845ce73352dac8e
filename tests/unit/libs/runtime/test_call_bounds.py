# SPDX-License-Identifier: Apache-2.0
"""The memory that a caller can hold in a server: refused requests, unread answers, watches of the health."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from libs.runtime.rpc.bounds import SMALL_ANSWER_BYTES, ByteBudget, CallLimit
from libs.runtime.rpc.errors import ServerFull
from libs.runtime.rpc.health import WATCH_COUNT_MAX
from libs.runtime.rpc.server import REFLECTION_CALL_COUNT_MAX
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.tokens import find_local_token
from tests.attack import http2
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime.servers import APPEND, APPEND_STREAM, DISPATCH, Served, TooLate, details_of, serving

pytestmark = pytest.mark.usefixtures("each_front")

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LARGE = bytes(1 << 20)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that the server does on its own."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - nobody tells when gRPC is done
            await asyncio.sleep(0.01)


async def _connection(served: Served) -> http2.Connection:
    """A reader that takes a thousand bytes of each answer."""
    target, token = f"127.0.0.1:{served.server.port}", f"Bearer {find_local_token(())}"
    return await asyncio.to_thread(http2.Connection, target, window_bytes=1_000, authorization=token)


async def read_all(call: Any) -> None:
    """Read a stream to its end."""
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_refused_request_is_freed_at_once() -> None:
    """Without the cyclic collector a refusal frees the request and its parsed parts."""
    async with serving() as served:
        served.append.error = TooLate(1)
        gc.disable()
        try:
            with pytest.raises(grpc.aio.AioRpcError):
                await served.call(APPEND)
            served.append.error = None
            assert [mark() for mark in served.append.marks] == [None]
        finally:
            gc.enable()


async def test_a_refused_call_has_status_and_metadata() -> None:
    """Unary and streamed: code, text and details arrive as with an abort, after the streamed answers."""
    async with serving() as served:
        served.append.error = TooLate(2)
        stream = served.channel.stream_stream(APPEND_STREAM)()
        await stream.write(b"x")
        for failing in (served.call(APPEND), stream.read()):
            with pytest.raises(grpc.aio.AioRpcError, match="value 2 is too late") as caught:
                await failing
            assert details_of(caught.value)[0].reason == "BAD_ARGUMENT"


async def test_a_stream_that_nobody_reads_ends() -> None:
    """After the limit the stream's answers are freed, and a late read gets STREAM_NOT_READ."""
    config = ServerConfig(port=0, stream_unread_timeout_ms=200)
    async with serving(config) as served:
        served.log.answer = LARGE
        call = served.channel.unary_stream(DISPATCH)(b"")
        async with asyncio.timeout(LIMIT_S):
            await served.log.ended.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_all(call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert details_of(caught.value)[0].reason == "STREAM_NOT_READ"
        assert dict(details_of(caught.value)[0].metadata) == {"limit_ms": "200"}


async def test_a_stream_that_is_read_slowly_goes_on() -> None:
    """The limit is for a single answer, not for the stream."""
    async with serving(ServerConfig(port=0, stream_unread_timeout_ms=6_000)) as served:
        served.log.answer = LARGE
        call = served.channel.unary_stream(DISPATCH)(b"")
        for _ in range(8):
            await asyncio.sleep(0.9)
            assert await call.read() is not grpc.aio.EOF
        call.cancel()


async def test_answers_that_nobody_takes_are_bounded() -> None:
    """An answer beyond the budget is refused with WINDOW_FULL, small answers pass.

    The budget is free again when the reader is gone.
    """
    async with serving(ServerConfig(port=0, answer_inflight_bytes_max=4 << 20)) as served:
        answers = served.server.trusted_bounds.answers
        connection = await _connection(served)
        served.log.answer = LARGE
        for _ in range(4):
            await asyncio.to_thread(connection.call, DISPATCH, b"")
        await until(lambda: answers.charged_bytes == 4 << 20)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _first_answer(served)
        info, _, retry = details_of(caught.value)
        assert (info.reason, dict(info.metadata)) == ("WINDOW_FULL", {"limit": str(4 << 20)})
        assert retry.retry_delay.ToMilliseconds() > 0
        served.log.answer = LARGE[:SMALL_ANSWER_BYTES]
        assert await _first_answer(served) == LARGE[:SMALL_ANSWER_BYTES]
        connection.close()
        await until(lambda: answers.charged_bytes == 0)
        served.log.answer = LARGE
        assert await _first_answer(served) == LARGE
        await until(lambda: answers.charged_bytes == 0)


async def _first_answer(served: Served) -> object:
    """The first answer of a new follower, except for the empty handshake."""
    call = served.channel.unary_stream(DISPATCH)(b"")
    try:
        while True:
            answer = await call.read()
            if answer:
                return answer
    finally:
        call.cancel()


async def test_unary_answers_that_nobody_takes_count_until_the_call_is_over() -> None:
    """An unread answer counts in the budget until the call is over.

    gRPC holds it after the handler is done.
    """
    async with serving(ServerConfig(port=0, answer_inflight_bytes_max=4 << 20)) as served:
        answers = served.server.bounds.answers
        connection = await _connection(served)
        connection.call(APPEND, LARGE[: SMALL_ANSWER_BYTES + 1])
        await until(lambda: answers.charged_bytes == SMALL_ANSWER_BYTES + 1)
        await served.call(APPEND, b"x")
        assert answers.charged_bytes == SMALL_ANSWER_BYTES + 1
        connection.close()
        await until(lambda: answers.charged_bytes == 0)


async def _watching(served: Served, count: int) -> AsyncIterator[object]:
    for _ in range(count):
        yield served.channel.unary_stream(WATCH)(b"")


async def test_health_has_room_of_its_own() -> None:
    """A health check is answered while calls are at their limit, and a call while all watches are taken.

    Watches and calls have limits of their own.
    """
    async with serving(ServerConfig(port=0, concurrent_rpc_max=1)) as served:
        watches = [watch async for watch in _watching(served, WATCH_COUNT_MAX)]
        for watch in watches:
            await watch.read()  # type: ignore[attr-defined]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.channel.unary_stream(WATCH)(b"").read()
        assert details_of(caught.value)[0].reason == "WINDOW_FULL"
        held = served.channel.stream_stream(APPEND_STREAM)()
        await held.write(b"x")
        assert await held.read() == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.call(APPEND, b"y")
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(details_of(caught.value)[0].metadata) == {"limit": "1"}
        answer = health_pb2.HealthCheckResponse.FromString(await served.call(CHECK))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        held.cancel()
        await until(lambda: served.server.bounds.calls.count == 0)
        assert await served.call(APPEND, b"y") == b"y"


async def test_reflection_has_room_of_its_own() -> None:
    """Repeated reflection calls take no place of a caller, and have a limit of their own."""
    async with serving(ServerConfig(port=0, concurrent_rpc_max=1)) as served:
        asked = [served.channel.stream_stream(REFLECTION)() for _ in range(REFLECTION_CALL_COUNT_MAX)]
        for one in asked:
            await one.write(b"")
            await one.read()
        assert await served.call(APPEND, b"x") == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.channel.stream_stream(REFLECTION)().read()
        assert details_of(caught.value)[0].reason == "WINDOW_FULL"
        for one in asked:
            one.cancel()


async def test_services_have_room_of_their_own() -> None:
    """A follower is served while clients hold all calls and all bytes of answers.

    Services have a limit of their own.
    """
    async with serving(ServerConfig(port=0, concurrent_rpc_max=1)) as served:
        held = served.channel.stream_stream(APPEND_STREAM)()
        await held.write(b"x")
        assert await held.read() == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.call(APPEND, b"y")
        assert details_of(caught.value)[0].reason == "WINDOW_FULL"
        answers = served.server.bounds.answers
        answers.charge(ServerConfig(port=0).answer_inflight_bytes_max)
        following = served.channel.unary_stream(DISPATCH)(b"")
        await following.read()
        assert (served.server.bounds.calls.count, served.server.trusted_bounds.calls.count) == (1, 1)
        assert served.server.trusted_bounds.answers is not answers
        following.cancel()
        held.cancel()
        await until(lambda: served.server.trusted_bounds.calls.count == 0)


async def test_a_watch_tells_each_change_and_ends_with_the_server() -> None:
    """A watch gets NOT_SERVING, SERVING and NOT_SERVING, and does not delay a stop."""
    statuses = health_pb2.HealthCheckResponse
    async with serving(is_ready=False) as served:
        watch = served.channel.unary_stream(WATCH, response_deserializer=statuses.FromString)(b"")
        seen = [(await watch.read()).status]
        served.server.admit()
        await served.server.set_healthy()
        seen.append((await watch.read()).status)
        await served.server.drain()
        seen.append((await watch.read()).status)
        assert await watch.read() is grpc.aio.EOF
        assert seen == [statuses.NOT_SERVING, statuses.SERVING, statuses.NOT_SERVING]
        unknown = health_pb2.HealthCheckRequest(service="nobody").SerializeToString()
        watch = served.channel.unary_stream(WATCH, response_deserializer=statuses.FromString)(unknown)
        assert (await watch.read()).status == statuses.SERVICE_UNKNOWN
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.call(CHECK, unknown)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert details_of(caught.value)[0].reason == "SERVICE_NOT_FOUND"


def test_the_limits_by_themselves() -> None:
    """A limit can be reached but not exceeded; a single answer passes alone, with any size."""
    calls, answers = CallLimit(1), ByteBudget("too many", 10)
    with calls, pytest.raises(ServerFull, match="calls"), calls:
        pass
    assert calls.count == 0
    answers.charge(11)
    with pytest.raises(ServerFull, match="too many"):
        answers.charge(1)
    answers.give_back(11)
    answers.charge(4)
    answers.charge(6)
    with pytest.raises(ServerFull, match="too many"):
        answers.charge(1)
    assert answers.charged_bytes == 10
