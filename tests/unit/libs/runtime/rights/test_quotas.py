# SPDX-License-Identifier: Apache-2.0
"""Quotas of a rights file, through a real server: refusals, streams, connections, reloads, and subjects side by side.

A quota of a byte a second and a large request make a debt of minutes, so that no test depends on the time.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration import to_milliseconds
from reput.commitlog.v1 import append_service_pb2

from libs.runtime.errors import ConfigError
from libs.runtime.http2.turns import TurnCall
from libs.runtime.rpc.errors import refusals
from libs.runtime.rpc.rights_check import RightsCheck
from libs.runtime.settings import ServerConfig
from libs.runtime.trust import tokens
from libs.runtime.trust.rights import access as access_module
from libs.runtime.trust.rights.accesses import ACCESSES
from tests.support.patience import LIMIT_S, eventually
from tests.unit.libs.runtime import servers
from tests.unit.libs.runtime.rights.test_access import batch
from tests.unit.libs.runtime.servers import APPEND, APPEND_STREAM, GET_STATUS, Served, details_of, serving

pytestmark = pytest.mark.usefixtures("each_front")

RIGHTS = """
[[subjects]]
name = "greedy"
token_file = "greedy.token"
QUOTA
[[subjects]]
name = "modest"
token_file = "modest.token"

[[rules]]
subjects = ["*"]
allow = ["produce", "consume"]
topics = ["*"]
groups = ["*"]
"""
NO_LIMIT, A_BYTE = "", "bytes_per_s_max = 1"
KEY = ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call look whether files have changed, and no request of a stream wait long for room."""
    monkeypatch.setattr(tokens, "CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(access_module, "CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(access_module, "ROOM_WAIT_S", 0.05)


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    """A server with a greedy subject and a modest subject."""
    for name in ("greedy", "modest", "operator", "service"):
        (tmp_path / f"{name}.token").write_text(f"{name}-token\n")
    limit(tmp_path / "rights.toml", A_BYTE)
    return ServerConfig(
        port=0,
        rights_file=tmp_path / "rights.toml",
        operator_token_file=tmp_path / "operator.token",
        service_token_file=tmp_path / "service.token",
    )


def limit(path: Path | None, quota: str) -> None:
    """Give the greedy subject a quota. Without one it has none."""
    assert path is not None
    path.write_text(RIGHTS.replace("QUOTA", quota))


def shown(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def outcome(served: Served, request: bytes, token: str, method: str = APPEND) -> str:
    """OK, or the reason and the quota of the refusal."""
    try:
        await served.call(method, request, metadata=shown(token))
    except grpc.aio.AioRpcError as error:
        info = details_of(error)[0]
        return f"{info.reason} {info.metadata['quota']}"
    return "OK"


async def test_a_subject_over_its_quota_is_refused_with_a_time(config: ServerConfig) -> None:
    """The refusal names subject, quota, value and limit. Other subjects, services and operators go on."""
    request = batch("orders")
    async with serving(config) as served:
        before = refusals[KEY]
        assert await outcome(served, request, "greedy-token") == "OK"
        with pytest.raises(grpc.aio.AioRpcError, match="greedy is over its quota: bytes_per_s_max is 1, ") as caught:
            await served.call(APPEND, request, metadata=shown("greedy-token"))
        info, _, retry = details_of(caught.value)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (info.reason, info.metadata["subject"], info.metadata["limit"]) == ("QUOTA_EXCEEDED", "greedy", "1")
        assert int(info.metadata["value"]) > len(request)
        assert 0 < to_milliseconds(retry.retry_delay) <= 1_000 * len(request)
        for token in ("modest-token", "operator-token", "service-token"):
            assert [await outcome(served, request, token) for _ in range(3)] == ["OK"] * 3
        assert await outcome(served, b"", "greedy-token", GET_STATUS) == "QUOTA_EXCEEDED bytes_per_s_max"
        assert len(served.append.requests) == 10
        assert served.server.access.statistics().over_quota_requests_total == 2
        assert refusals[KEY] == before + 2


async def test_a_few_refusals_are_held(config: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refusals of a subject wait, the third leaves at once, and the subject's room to wait is free again after."""
    request, refused = batch("orders"), "QUOTA_EXCEEDED bytes_per_s_max"
    async with serving(config) as served:
        assert await outcome(served, request, "greedy-token") == "OK"
        monkeypatch.setattr(access_module, "HOLD_S", LIMIT_S * 10)
        monkeypatch.setattr(access_module, "HELD_COUNT_MAX", 2)
        calls = [asyncio.create_task(outcome(served, request, "greedy-token")) for _ in range(3)]
        done, held = await asyncio.wait(calls, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        assert ([call.result() for call in done], len(held)) == ([refused], 2)
        assert await outcome(served, request, "modest-token") == "OK"
        for call in held:
            call.cancel()
        await asyncio.wait(held)
        quota = served.server.access.quota_of("greedy")
        assert quota is not None
        await eventually(lambda: quota.held_count == 0)


async def test_more_refusals_at_once_are_held_longer(config: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten times the calls at once a subject gets no more refusals a second. All subjects share a maximum."""
    request, refused = batch("orders"), "QUOTA_EXCEEDED bytes_per_s_max"
    async with serving(config) as served:
        assert await outcome(served, request, "greedy-token") == "OK"
        monkeypatch.setattr(access_module, "HOLD_S", 0.05)
        monkeypatch.setattr(access_module, "HOLD_STEP_COUNT", 1)
        start_s = time.monotonic()
        found = await asyncio.gather(*(outcome(served, request, "greedy-token") for _ in range(10)))
        assert found == [refused] * 10
        assert time.monotonic() - start_s >= 0.05 * 10
        monkeypatch.setattr(access_module, "HOLD_S", LIMIT_S * 10)
        monkeypatch.setattr(access_module, "HELD_COUNT_SUM_MAX", 0)
        assert await outcome(served, request, "greedy-token") == refused


async def test_held_requests_take_no_room_of_others(config: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a request that is refused and held do not count as bytes that no method has taken."""
    large = batch("orders", body=bytes(700 << 10))
    config = replace(config, request_inflight_bytes_max=1 << 20)
    async with serving(config) as served:
        assert await outcome(served, batch("orders"), "greedy-token") == "OK"
        monkeypatch.setattr(access_module, "HOLD_S", LIMIT_S * 10)
        quota = served.server.access.quota_of("greedy")
        assert quota is not None
        held: list[asyncio.Task[str]] = []
        while len(held) < 3:
            held.append(asyncio.create_task(outcome(served, large, "greedy-token")))
            await eventually(lambda: quota.held_count == len(held))
        assert await outcome(served, large, "modest-token") == "OK"
        for call in held:
            call.cancel()
        await asyncio.wait(held)


async def test_callers_without_a_name_share_a_quota(config: ServerConfig) -> None:
    """`anonymous` may have limits, and no credential."""
    assert config.rights_file is not None
    text = config.rights_file.read_text().replace('subjects = ["*"]', 'subjects = ["*", "anonymous"]')
    config.rights_file.write_text(f'{text}\n[[subjects]]\nname = "anonymous"\nbytes_per_s_max = 1\n')
    async with serving(config) as served:
        assert served.server.access.statistics().subject_count == 2
        await served.call(APPEND, batch("orders"), metadata=())
        with pytest.raises(grpc.aio.AioRpcError, match="anonymous is over its quota: bytes_per_s_max is 1, "):
            await served.call(APPEND, batch("orders"), metadata=())
        assert await outcome(served, batch("orders"), "modest-token") == "OK"
        limit(config.rights_file, A_BYTE)
        with pytest.raises(grpc.aio.AioRpcError, match="no rule allows it"):
            await served.call(APPEND, batch("orders"), metadata=())


async def test_a_refused_request_counts_nothing(config: ServerConfig) -> None:
    """A request without a right is refused for that, and a subject without room is told so before."""
    limit(config.rights_file, "calls_per_s_max = 1000000\nstream_count_max = 1")
    async with serving(config) as served:
        quota = served.server.access.quota_of("greedy")
        assert quota is not None
        call: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("greedy-token"))
        await call.write(batch("orders"))
        assert await call.read() == batch("orders")
        assert quota.stream_count == 1
        second: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("greedy-token"))
        with pytest.raises(grpc.aio.AioRpcError, match="stream_count_max is 1") as caught:
            await second.read()
        assert to_milliseconds(details_of(caught.value)[2].retry_delay) == 1_000
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        await eventually(lambda: quota.stream_count == 0)


async def test_bytes_within_a_stream_count(config: ServerConfig) -> None:
    """A stream that answers no refusals itself ends with the first request over the quota."""
    async with serving(config) as served:
        call: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("greedy-token"))
        await call.write(batch("orders"))
        assert await call.read() == batch("orders")
        await call.write(batch("orders"))
        with pytest.raises(grpc.aio.AioRpcError, match="bytes_per_s_max is 1"):
            await call.read()
        other: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("modest-token"))
        for _ in range(3):
            await other.write(batch("orders"))
            assert await other.read() == batch("orders")


async def test_a_request_of_a_stream_waits_for_room(config: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is slowed down before it is refused. A quota that is taken away while it waits lets it go on."""
    monkeypatch.setattr(access_module, "ROOM_WAIT_S", LIMIT_S)
    async with serving(config) as served:
        call: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("greedy-token"))
        for _ in range(2):
            await call.write(batch("orders"))
        assert await call.read() == batch("orders")
        waiting = asyncio.ensure_future(call.read())
        assert await outcome(served, batch("orders"), "modest-token") == "OK"
        assert not waiting.done()
        limit(config.rights_file, NO_LIMIT)
        assert await outcome(served, batch("orders"), "modest-token") == "OK"  # reads the file
        assert await asyncio.wait_for(waiting, LIMIT_S) == batch("orders")


async def test_a_lowered_quota_is_in_force_within_an_open_stream(config: ServerConfig) -> None:
    """A stream that was opened without a quota obeys the quota that comes, and is free again when it goes."""
    limit(config.rights_file, NO_LIMIT)
    async with serving(config) as served:
        call: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("greedy-token"))
        for quota in (NO_LIMIT, A_BYTE, NO_LIMIT, "bytes_per_s_max = 1000000000", A_BYTE):
            limit(config.rights_file, quota)
            await call.write(batch("orders"))
            assert await call.read() == batch("orders")
        await call.write(batch("orders"))
        with pytest.raises(grpc.aio.AioRpcError, match="bytes_per_s_max is 1"):
            await call.read()


async def test_limits_that_come_back_count_what_is_open(config: ServerConfig) -> None:
    """A subject without limits for a while, in between also under another name, gets no more streams by that."""
    limit(config.rights_file, "stream_count_max = 1")
    async with serving(config) as served:
        call: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("greedy-token"))
        quota = served.server.access.quota_of("greedy")
        for text in (NO_LIMIT, "stream_count_max = 1"):
            await call.write(batch("orders"))
            assert await call.read() == batch("orders")
            limit(config.rights_file, text)
        other: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=shown("greedy-token"))
        with pytest.raises(grpc.aio.AioRpcError, match="stream_count_max is 1"):
            await other.read()
        limit(config.rights_file, NO_LIMIT)
        await call.write(batch("orders"))
        assert await call.read() == batch("orders")
        assert served.server.access.quota_of("greedy") is None
        call.cancel()
        await eventually(lambda: quota is not None and quota.stream_count == 0)


async def test_a_wrong_quota_refuses_the_file(config: ServerConfig, caplog: pytest.LogCaptureFixture) -> None:
    """The quotas that were read before stay in force, with what they have counted."""
    async with serving(config) as served:
        assert await outcome(served, batch("orders"), "greedy-token") == "OK"
        limit(config.rights_file, "bytes_per_s_max = 0")
        assert await outcome(served, batch("orders"), "greedy-token") == "QUOTA_EXCEEDED bytes_per_s_max"
        assert "line 5: subjects[0].bytes_per_s_max is 0: must be an integer from 1 to" in caplog.text
        limit(config.rights_file, f"{A_BYTE} # the same")
        assert await outcome(served, batch("orders"), "greedy-token") == "QUOTA_EXCEEDED bytes_per_s_max"
        limit(config.rights_file, NO_LIMIT)
        assert await outcome(served, batch("orders"), "greedy-token") == "OK"
    limit(config.rights_file, "calls_per_s_max = true")
    with pytest.raises(ConfigError, match="calls_per_s_max is True"):
        async with serving(config):
            pass


@contextlib.asynccontextmanager
async def channels(served: Served, count: int) -> AsyncIterator[Sequence[grpc.aio.Channel]]:
    """Connections of their own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(f"localhost:{served.server.port}", [*options, ("grpc.primary_user_agent", i)])
            )
            for i in map(str, range(count))
        ]


async def answer(channel: grpc.aio.Channel, token: str) -> str:
    """OK, or the quota of the refusal."""
    try:
        await channel.unary_unary(APPEND)(batch("orders"), timeout=LIMIT_S, metadata=shown(token))
    except grpc.aio.AioRpcError as error:
        return str(details_of(error)[0].metadata["quota"])
    return "OK"


async def test_connections_are_counted_by_the_front_in_the_loop(config: ServerConfig) -> None:
    """The third connection of a subject is refused, until the first is closed. Others may use the same connections."""
    if servers.front != "http2":
        pytest.skip("gRPC's own server does not show connections")
    limit(config.rights_file, "connection_count_max = 2")
    async with serving(config) as served, channels(served, 3) as (first, second, third):
        quota = served.server.access.quota_of("greedy")
        assert quota is not None
        for channel in (first, first, second):
            assert await answer(channel, "greedy-token") == "OK"
        assert await answer(third, "greedy-token") == "connection_count_max"
        assert await answer(third, "modest-token") == "OK"
        assert quota.connection_count == 2
        await first.close()
        await eventually(lambda: quota.connection_count == 1)
        assert await answer(third, "greedy-token") == "OK"
        assert await answer(second, "greedy-token") == "OK"


async def test_thousands_of_unknown_tokens_make_no_quota(config: ServerConfig) -> None:
    """Memory is bounded by the subjects of the file. Unknown tokens are refused, and known subjects go on."""
    async with serving(config) as served:
        found = [await outcome(served, b"", f"wrong-{number}", GET_STATUS) for number in range(500)]
        assert set(found) == {"UNAUTHENTICATED "}
        assert served.server.access.quota_of("wrong-1") is None
        assert await outcome(served, batch("orders"), "modest-token") == "OK"


@pytest.mark.parametrize("first", [b"taken", None])
async def test_a_turn_counts_each_request_once(config: ServerConfig, first: bytes | None) -> None:
    """A request that the turn does not take is given back, because the method is called for it, which counts it."""
    async with serving(config) as served:
        access = served.server.access
        method = append_service_pb2.DESCRIPTOR.services_by_name["AppendService"].methods_by_name["Append"]
        check = RightsCheck(access, ACCESSES[APPEND], method, goes_on=False, refused=lambda *_: None)
        given: list[int] = []

        def take(some: Sequence[bytes], _: Sequence[TurnCall]) -> Iterable[bytes | None]:
            given.append(len(some))
            return [first, b"taken"]

        quota = access.quota_of("greedy")
        assert quota is not None
        calls = [Called("greedy-token")] * 3 + [Called("modest-token"), Called("wrong")]
        outcomes = list(check.taking(take)([batch("orders")] * len(calls), calls))  # type: ignore[arg-type]
        assert outcomes == [first, None, None, b"taken", None]
        assert given == [2]
        assert quota.has_room() == (first is None)


class Called:
    """A call of a turn."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.connection = self
        self.when_lost: dict[object, object] = {}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the token."""
        return shown(self._token)

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return no certificate."""
        return {}
