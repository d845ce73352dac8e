# SPDX-License-Identifier: Apache-2.0
"""Gateway: a process before all three machines, where the clients are. It may be killed at any time.

Callers: a single event loop.
"""

import signal

import grpc.aio

from tests.crash.live_store import CHANNEL_OPTIONS
from tests.crash.nursery import Child, Nursery
from tests.support.served_gateway import Caller

PORT = 8081
FLAGS = ("--reconnect-ms-max", "100", "--drain-timeout-ms", "1000", "--commitlog-timeout-ms", "3000")


class Gateway:
    """The gateway's process. `is_once`: it stores a message that comes again under its id once."""

    def __init__(self, nursery: Nursery, *, is_once: bool) -> None:
        self.is_once = is_once
        self.children: list[Child] = []
        """All that were started, the youngest last."""
        self._nursery = nursery
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{PORT}", options=CHANNEL_OPTIONS)

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return bool(self.children) and not self.children[-1].ended.done()

    def caller(self, client: str) -> Caller:
        """A client of RocketMQ's protocol."""
        return Caller(self._channel, client)

    async def start(self, log_targets: str, delivery_targets: str) -> None:
        """Start it, if it does not run, and wait until it serves. Raises EndedEarly."""
        if self.is_running:
            return
        behind = ("--commitlog-target", log_targets, "--delivery-target", delivery_targets)
        own = ("--port", str(PORT), "--metrics-port", "0", "--once", "true" if self.is_once else "false")
        named = {"REPUT_GATEWAY_LOG_FORMAT": "json"}
        self.children.append(await self._nursery.spawn("gateway", (*own, *behind, *FLAGS), named))
        await self.children[-1].wait_serving()

    async def kill(self) -> None:
        """End it at once."""
        if self.is_running:
            self.children[-1].send(signal.SIGKILL)
            await self.children[-1].wait_ended()

    async def stop(self) -> list[str]:
        """End it in order. Returns the faults of its end."""
        if not self.is_running:
            return []
        self.children[-1].send(signal.SIGTERM)
        code = await self.children[-1].wait_ended()
        return [f"the gateway ended with {code} after SIGTERM"] if code else []

    async def close(self) -> None:
        """Kill it, and forget the connection."""
        await self.kill()
        await self._channel.close()
