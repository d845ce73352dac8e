# SPDX-License-Identifier: Apache-2.0
"""Calls that are passed on as bytes: a caller gets the answer of a direct call, and a call holds a window at most."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from libs.runtime.http2.wire import RELAYED_WINDOW_BYTES
from tests.support.patience import LIMIT_S, eventually
from tests.support.surroundings import free_port
from tests.unit.libs.runtime.http2.relays import Relayed, Service, relaying

pytestmark = pytest.mark.usefixtures("each_session")

C = grpc.StatusCode
SAID = (("a", "b"), ("b-bin", b"\0\xff"), ("traceparent", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"))


@pytest.fixture
async def relayed() -> AsyncIterator[Relayed]:
    """A relay to a service."""
    async with relaying() as found:
        yield found


async def outcome(call: Any) -> tuple[Any, ...]:
    """Return the answers, the metadata and the status of a call."""
    answers = []
    try:
        if hasattr(call, "__aiter__"):
            answers.extend([answer async for answer in call])
        else:
            answers.append(await call)
    except grpc.aio.AioRpcError:
        pass
    initial, trailing = await call.initial_metadata(), await call.trailing_metadata()
    return answers, list(initial or ()), list(trailing or ()), await call.code(), await call.details()


async def code_of(call: Any) -> grpc.StatusCode:
    """Return the code with which a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return C.OK


async def to_end(call: Any) -> None:
    """Read a stream to its end."""
    while await call.read() is not grpc.aio.EOF:
        pass


async def some(count: int, size: int) -> AsyncIterator[bytes]:
    """Yield requests."""
    for number in range(count):
        yield bytes([number % 256]) * size


class TestSame:
    """A call through a relay has the answers, the metadata and the status of a direct call."""

    @pytest.mark.parametrize("size", [0, 1, 5_000, 300_000, 5 << 20, 40 << 20])
    async def test_unary(self, relayed: Relayed, size: int) -> None:
        """A call of any size arrives, with the metadata of both sides. The relay holds no bytes afterwards."""
        request = bytes(range(256)) * (size // 256 + 1)
        for channel in (relayed.direct, relayed.channel):
            call = channel.unary_unary("/x.X/Unary")(request[:size], metadata=SAID, timeout=LIMIT_S)
            answers, initial, trailing, code, _ = await outcome(call)
            assert (answers, code) == ([request[:size]], C.OK)
            assert ("begun-bin", b"\0\xfe") in initial
            assert ("ended-bin", b"\0\xfd") in trailing
        direct, through = relayed.service.seen
        own = {key: through.pop(key) for key in list(through) if key.startswith("reput-door")}
        assert through == direct
        assert own["reput-door-peer"].startswith("ipv4:127.0.0.1:")  # type: ignore[arg-type]
        await eventually(lambda: relayed.relay.held_bytes == 0 and relayed.relay.upstream.open_count == 0)
        assert relayed.relay.upstream.ended == {b"0": 1}

    async def test_kinds(self, relayed: Relayed) -> None:
        """Streams in each direction and in both."""
        results = []
        for channel in (relayed.direct, relayed.channel):
            down = await outcome(channel.unary_stream("/x.X/Down")(b"300 40000", timeout=LIMIT_S))
            up = await outcome(channel.stream_unary("/x.X/Up")(some(300, 40_000), timeout=LIMIT_S))
            both = await outcome(channel.stream_stream("/x.X/Both")(some(100, 100_000), timeout=LIMIT_S))
            none = await outcome(channel.stream_stream("/x.X/Both")(some(0, 0), timeout=LIMIT_S))
            results.append((down, up, both, none))
        assert results[0] == results[1]
        assert len(results[1][0][0]) == 300
        assert results[1][1][0] == [b"12000000"]
        await eventually(lambda: relayed.relay.held_bytes == 0)

    async def test_errors(self, relayed: Relayed) -> None:
        """Errors before and after the first answer, and errors of unknown methods, arrive unchanged."""
        for path in ("/x.X/Fail", "/x.X/Nothing"):
            calls = [each.unary_unary(path)(b"x", timeout=LIMIT_S) for each in (relayed.direct, relayed.channel)]
            direct, through = [await outcome(call) for call in calls]
            assert direct == through
        both = (relayed.direct, relayed.channel)
        calls = [each.unary_stream("/x.X/FailLate")(b"x", timeout=LIMIT_S) for each in both]
        direct, through = [await outcome(call) for call in calls]
        assert direct == through
        assert through[3:] == (C.DATA_LOSS, "half")

    async def test_compressed(self, relayed: Relayed) -> None:
        """A compressed request goes on unchanged."""
        call = relayed.channel.unary_unary("/x.X/Unary")(
            b"a" * 100_000, compression=grpc.Compression.Gzip, timeout=LIMIT_S
        )
        assert await call == b"a" * 100_000

    async def test_many(self, relayed: Relayed) -> None:
        """Many calls at once get their own answers."""
        calls = [relayed.channel.unary_unary("/x.X/Unary")(b"%d" % number, timeout=LIMIT_S) for number in range(500)]
        assert [await call for call in calls] == [b"%d" % number for number in range(500)]

    async def test_in_turn(self, relayed: Relayed) -> None:
        """Requests and answers of a stream follow each other."""
        call = relayed.channel.stream_stream("/x.X/Both")(timeout=LIMIT_S)
        for request in (b"a", bytes(3 << 20), b""):
            await call.write(request)
            assert await call.read() == request
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is C.OK


class TestEnds:
    """Deadlines, cancellation and lost services."""

    async def test_deadline(self, relayed: Relayed) -> None:
        """A deadline goes on, and its passing ends the call on both sides."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await relayed.channel.unary_unary("/x.X/Hang")(b"", timeout=0.3)
        assert caught.value.code() is C.DEADLINE_EXCEEDED
        await asyncio.wait_for(relayed.service.ended.wait(), LIMIT_S)
        (remaining_s,) = relayed.service.remaining_s
        assert remaining_s is not None
        assert 0 < remaining_s <= 0.31  # gRPC rounds a time-out up before it sends it

    async def test_cancelled(self, relayed: Relayed) -> None:
        """A cancelled call, and a lost caller, are cancelled at the service."""
        call = relayed.channel.stream_stream("/x.X/Both")()
        await call.write(b"x")
        assert await call.read() == b"x"
        call.cancel()
        await asyncio.wait_for(relayed.service.ended.wait(), LIMIT_S)
        relayed.service.ended.clear()
        async with grpc.aio.insecure_channel(relayed.address) as other:
            lost = other.unary_unary("/x.X/Hang")(b"")
            await eventually(lambda: len(relayed.service.remaining_s) == 2)
        await asyncio.wait_for(relayed.service.ended.wait(), LIMIT_S)
        assert lost.done()
        await eventually(lambda: relayed.relay.upstream.open_count == 0 and relayed.relay.held_bytes == 0)

    async def test_away(self) -> None:
        """Calls to a stopped service end with UNAVAILABLE and its name. They succeed after its start."""
        port = free_port()
        async with relaying(f"127.0.0.1:{port}") as relayed:
            call = relayed.channel.unary_unary("/x.X/Unary")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"x", timeout=LIMIT_S)
            assert caught.value.code() is C.UNAVAILABLE
            assert "the service x" in str(caught.value.details())
            assert dict(caught.value.trailing_metadata() or ())["unreached"] == "yes"
            service = Service()
            await service.start(port)
            async with asyncio.timeout(LIMIT_S):
                while await code_of(call(b"y", timeout=LIMIT_S)) is C.UNAVAILABLE:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.05)
            assert await call(b"y", timeout=LIMIT_S) == b"y"
            stream = relayed.channel.stream_stream("/x.X/Both")()
            await stream.write(b"x")
            assert await stream.read() == b"x"
            await service.server.stop(0)
            assert await code_of(to_end(stream)) in (C.UNAVAILABLE, C.CANCELLED)


class TestMembers:
    """Several members, one of which leads."""

    async def test_leader(self) -> None:
        """A call or stream that a follower refuses goes to the leader. Later calls go to the leader at once."""
        follower, leader = Service(), Service()
        follower.reason = "NOT_LEADER"
        async with relaying(await follower.start(), await leader.start()) as relayed:
            stream = relayed.channel.stream_stream("/x.X/Both")(some(3, 100), timeout=LIMIT_S)
            assert len([answer async for answer in stream]) == 3
            assert await relayed.channel.unary_unary("/x.X/Unary")(b"y", timeout=LIMIT_S) == b"y"
            assert (len(follower.seen), len(leader.seen)) == (1, 2)
            follower.reason, leader.reason = "", "NOT_LEADER"
            assert await relayed.channel.unary_unary("/x.X/Unary")(b"z", timeout=LIMIT_S) == b"z"
            assert (len(follower.seen), len(leader.seen)) == (2, 3)
            follower.reason = "NOT_LEADER"
            with pytest.raises(grpc.aio.AioRpcError, match="refused: NOT_LEADER"):
                await relayed.channel.unary_unary("/x.X/Unary")(b"z", timeout=LIMIT_S)
        await follower.server.stop(0)
        await leader.server.stop(0)

    async def test_one_away(self) -> None:
        """A call that did not reach a member goes to the next member."""
        async with relaying(f"127.0.0.1:{free_port()}", await (service := Service()).start()) as relayed:
            assert await relayed.channel.unary_unary("/x.X/Unary")(b"y", timeout=LIMIT_S) == b"y"
        await service.server.stop(0)


class TestBounds:
    """A slow caller or service costs a window. All calls together cost a budget at most."""

    async def test_slow_service(self, relayed: Relayed) -> None:
        """A service that does not read stops its caller. The relay holds a window at most."""
        relayed.service.may_read.clear()
        call = relayed.channel.stream_stream("/x.X/Both")()
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await call.write(bytes(256 << 10))
                sent += 1

        sending = asyncio.create_task(send())
        seen = -1
        while seen != sent:
            seen = sent
            await asyncio.sleep(0.5)
            assert relayed.relay.held_bytes <= 2 * RELAYED_WINDOW_BYTES
        assert await relayed.channel.unary_unary("/x.X/Unary")(bytes(1 << 20), timeout=LIMIT_S) == bytes(1 << 20)
        relayed.service.may_read.set()
        for _ in range(sent):
            assert len(await call.read()) == 256 << 10
        sending.cancel()
        call.cancel()
        await eventually(lambda: relayed.relay.held_bytes == 0)

    async def test_slow_callers(self, relayed: Relayed) -> None:
        """Each caller that does not read costs a window. The calls of other callers go on."""
        calls = [relayed.channel.unary_stream("/x.X/Down")(b"1000 100000") for _ in range(40)]
        for call in calls:
            await call.read()
        seen = -1
        while seen != relayed.relay.held_bytes:
            seen = relayed.relay.held_bytes
            await asyncio.sleep(0.5)
        assert seen <= 40 * (RELAYED_WINDOW_BYTES + (1 << 16))
        async with grpc.aio.insecure_channel(relayed.address) as other:
            assert await other.unary_unary("/x.X/Unary")(bytes(1 << 20), timeout=LIMIT_S) == bytes(1 << 20)
        for call in calls:
            call.cancel()
        await eventually(lambda: relayed.relay.held_bytes == 0)

    async def test_budget(self) -> None:
        """Beyond the budget of all callers a call is refused, and its bytes are given back."""
        async with relaying(budget_bytes=2 << 20) as relayed:
            calls = [relayed.channel.unary_stream("/x.X/Down")(b"1000 100000", timeout=LIMIT_S) for _ in range(20)]
            for call in calls:
                await code_of(call.read())  # the budget may be used before
            codes = [await code_of(to_end(call)) for call in calls[10:]]
            assert C.RESOURCE_EXHAUSTED in codes
            assert relayed.relay.held_bytes <= 2 << 20
            for call in calls:
                call.cancel()
            await eventually(lambda: relayed.relay.held_bytes == 0)
            assert relayed.relay.upstream.full_count >= codes.count(C.RESOURCE_EXHAUSTED)
            await eventually(lambda: relayed.relay.upstream.open_count == 0)

    async def test_budget_of_requests(self) -> None:
        """A request beyond the budget ends its call, which is counted. The service is a server that never answers."""
        accepted: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
        target = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with relaying(target, budget_bytes=1 << 20) as relayed:
            upstream = relayed.relay.upstream
            held = relayed.channel.unary_unary("/x.X/Unary")(bytes(900 << 10))
            await eventually(lambda: relayed.relay.held_bytes > 700 << 10)
            call = relayed.channel.unary_unary("/x.X/Unary")(bytes(900 << 10), timeout=LIMIT_S)
            assert await code_of(call) is C.RESOURCE_EXHAUSTED
            await eventually(lambda: (upstream.full_count, upstream.open_count, upstream.ended[b"8"]) == (1, 1, 1))
            held.cancel()
            await eventually(lambda: relayed.relay.held_bytes == 0 and upstream.open_count == 0)
        for writer in accepted:
            writer.transport.abort()
        silent.close()
        await asyncio.sleep(0)

    async def test_large_metadata(self, relayed: Relayed) -> None:
        """The relay refuses metadata without room for its own fields. The connection to the service stays open."""
        call = relayed.channel.unary_unary("/x.X/Unary")
        await call(b"", timeout=LIMIT_S)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", metadata=(("a", "b" * 13_000),), timeout=LIMIT_S)
        assert caught.value.code() is C.RESOURCE_EXHAUSTED
        assert await call(b"x", metadata=(("a", "b" * 6_000),), timeout=LIMIT_S) == b"x"

    async def test_forged(self, relayed: Relayed) -> None:
        """Fields of a door that a caller sends do not go on."""
        metadata = (("reput-door", "x"), ("reput-door-peer", "ipv4:1.2.3.4:5"), ("reput-door-other", "y"))
        await relayed.channel.unary_unary("/x.X/Unary")(b"", metadata=metadata, timeout=LIMIT_S)
        assert {key for key in relayed.service.seen[0] if key.startswith("reput")} == {"reput-door-peer"}
        assert relayed.service.seen[0]["reput-door-peer"] != "ipv4:1.2.3.4:5"
