# SPDX-License-Identifier: Apache-2.0
"""Unary methods whose calls run up to their first wait without a task."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from libs.runtime.http2.session.build import best
from libs.runtime.http2.session.plain import PlainSession
from tests.support.patience import LIMIT_S, eventually
from tests.unit.libs.runtime import servers
from tests.unit.libs.runtime.servers import APPEND, GET_STATUS, Served, serving

HAS_TASKS = best()[0] is PlainSession
"""Whether each call has a task from its start: the session in Python hands over no turns."""


class Waiting(servers.AppendServicer):
    """Waits for `release` if the request says so."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()
        self.contexts: list[Any] = []
        self.had_task: list[bool] = []
        self.cancelled_count = 0

    async def Append(self, request: bytes, context: object) -> bytes:  # noqa: N802
        self.contexts.append(context)
        self.had_task.append(asyncio.current_task() is not None)
        if request == b"wait":
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled_count += 1
                raise
            assert asyncio.current_task() is not None
        return request * 2


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Served, Waiting]]:
    monkeypatch.setattr(servers, "is_at_once", True)
    monkeypatch.setattr(servers, "AppendServicer", Waiting)
    async with serving() as running:
        assert isinstance(running.append, Waiting)
        yield running, running.append


async def test_a_call_without_a_wait_has_no_task(served: tuple[Served, Waiting]) -> None:
    """It has the address and the metadata of its caller."""
    running, method = served
    assert await running.call(APPEND, b"x", metadata=(("some-key", "some value"),)) == b"xx"
    assert method.had_task == [HAS_TASKS]
    (context,) = method.contexts
    assert context.peer().startswith(("ipv4:127.0.0.1:", "ipv6:[::1]:"))
    assert ("some-key", "some value") in context.invocation_metadata()


async def test_a_call_that_waits_is_a_running_call(served: tuple[Served, Waiting]) -> None:
    """It goes on in a task, counts until it is answered, and calls beside it are answered meanwhile."""
    running, method = served
    waiting = [asyncio.create_task(running.call(APPEND, b"wait")) for _ in range(3)]
    await eventually(lambda: running.server.bounds.calls.count == 3)
    assert await running.call(APPEND, b"y") == b"yy"
    assert await running.call(GET_STATUS) == b""
    method.release.set()
    assert await asyncio.gather(*waiting) == [b"waitwait"] * 3
    assert (method.had_task, running.server.bounds.calls.count) == ([HAS_TASKS] * 4, 0)


async def test_a_call_that_waits_has_its_deadline(served: tuple[Served, Waiting]) -> None:
    """At the deadline the method is cancelled, and the caller gets DEADLINE_EXCEEDED."""
    running, method = served
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.channel.unary_unary(APPEND)(b"wait", timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: (method.cancelled_count, running.server.bounds.calls.count) == (1, 0))


async def test_a_call_that_waits_may_be_taken_back(served: tuple[Served, Waiting]) -> None:
    """The method is cancelled."""
    running, method = served
    call = running.channel.unary_unary(APPEND)(b"wait", timeout=LIMIT_S)
    await eventually(lambda: running.server.bounds.calls.count == 1)
    call.cancel()
    await eventually(lambda: (method.cancelled_count, running.server.bounds.calls.count) == (1, 0))
