# SPDX-License-Identifier: Apache-2.0
"""Honest callers beside the greedy caller: a producer, and a look at the health of each service, again and again.

Each waits for its answer before it calls again, so that a stall counts as a single long call and not as many.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reput.commitlog.v1 import append_service_pb2, append_service_pb2_grpc
from reput_server.probe import check_page

from tests.attack.stack import CONSOLE
from tests.attack.store import HONEST

PACE_S = 0.01
CALL_TIMEOUT_S = 30.0
BODY = bytes(100)


class Canary:
    """Latencies in milliseconds, and failures, since `forget`."""

    def __init__(self, targets: dict[str, str], appends_at: str) -> None:
        self._targets, self._appends_at = targets, appends_at
        self.appends_ms: list[float] = []
        self.looks_ms: dict[str, list[float]] = {}
        self.failures: dict[str, int] = {}
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.appends_ms, self.failures = [], {}
        self.looks_ms = {name: [] for name in self._targets}

    @property
    def append_p99_ms(self) -> float:
        """The second slowest of a hundred appends."""
        return quantile(self.appends_ms, 0.99)

    def failed(self, what: str) -> int:
        """Return the number of failures of a kind of call since `forget`."""
        return sum(count for text, count in self.failures.items() if text.startswith(f"{what}:"))

    def broken(self, *, besides: str) -> list[str]:
        """The failures, except the health of a service that was ended on purpose."""
        return [
            f"{count:,} x {what}" for what, count in self.failures.items() if f"health of the {besides}:" not in what
        ]

    @contextlib.asynccontextmanager
    async def flying(self) -> AsyncIterator[None]:
        """Call within the block."""
        async with contextlib.AsyncExitStack() as stack:
            channels = {
                name: await stack.enter_async_context(
                    grpc.aio.insecure_channel(target, [("grpc.enable_http_proxy", 0)])
                )
                for name, target in self._targets.items()
                if name != CONSOLE
            }
            at = grpc.aio.insecure_channel(self._appends_at, [("grpc.enable_http_proxy", 0)])
            tasks = [asyncio.create_task(self._appends(await stack.enter_async_context(at)))]
            tasks += [asyncio.create_task(self._looks(name, channel)) for name, channel in channels.items()]
            tasks += [asyncio.create_task(self._pages(self._targets[CONSOLE]))] if CONSOLE in self._targets else []
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _appends(self, channel: grpc.aio.Channel) -> None:
        stub = append_service_pb2_grpc.AppendServiceStub(channel)
        request = append_service_pb2.AppendRequest(messages=[append_service_pb2.AppendMessage(topic=HONEST, body=BODY)])
        while True:
            await self._timed("append", lambda: stub.Append(request, timeout=CALL_TIMEOUT_S), self.appends_ms)

    async def _looks(self, name: str, channel: grpc.aio.Channel) -> None:
        stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
        while True:
            await self._timed(
                f"health of the {name}", lambda: stub.Check(request, timeout=CALL_TIMEOUT_S), self.looks_ms[name]
            )

    async def _pages(self, target: str) -> None:
        """Ask the console for its health, each time on a connection of its own."""
        while True:
            await self._timed("health of the console", lambda: _page(target), self.looks_ms[CONSOLE])

    async def _timed(self, what: str, call: Callable[[], Awaitable[object]], times_ms: list[float]) -> None:
        start_s = time.monotonic()
        try:
            await call()
        except (grpc.aio.AioRpcError, OSError) as error:
            text = f"{what}: {error.code().name if isinstance(error, grpc.aio.AioRpcError) else error}"
            self.failures[text] = self.failures.get(text, 0) + 1
        times_ms.append((time.monotonic() - start_s) * 1_000)
        await asyncio.sleep(PACE_S)


async def _page(target: str) -> None:
    """Raises OSError if the console does not serve."""
    if reason := await asyncio.to_thread(check_page, target):
        raise OSError(reason)


def quantile(values: list[float], share: float) -> float:
    """The value below which this share lies; 0 without values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0
