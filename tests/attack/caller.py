# SPDX-License-Identifier: Apache-2.0
"""The calls of greedy clients: calls that are counted by how they end, and calls that are held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from tests.support.trusted import trusted

HOLDING_CONNECTIONS = 8
AGAIN_S = 0.2
BURST_COUNT, BURST_PAUSE_S = 100, 0.03
"""Calls that come faster than they are accepted are dropped by gRPC itself (rapid_reset)."""
Targets = dict[str, str]
Counts = dict[str, int]


class Caller:
    """Unary calls with raw bytes that are counted by how they end, until the time is over."""

    def __init__(self, target: str, seconds: float) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self._channel = trusted(grpc.insecure_channel(target, options))
        self._end_s = time.monotonic() + seconds
        self.counts: Counts = {}

    @property
    def has_time(self) -> bool:
        """Whether the time is not over."""
        return time.monotonic() < self._end_s

    def call(self, method: str, request: Message | bytes, *metadata: tuple[str, str]) -> bool:
        """Make a call. Returns whether it was answered."""
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        options: dict[str, Any] = {"metadata": metadata} if metadata else {}
        try:
            self._channel.unary_unary(method)(raw, timeout=60, **options)
        except grpc.RpcError as error:
            self.count(error.code().name.lower())
            return False
        self.count("ok")
        return True

    def count(self, name: str, amount: int = 1) -> None:
        """Count."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def repeat(self, *calls: tuple[str, Message | bytes]) -> Counts:
        """The calls in turn, until the time is over; each at least once."""
        turn = 0
        while turn < len(calls) or self.has_time:
            self.call(*calls[turn % len(calls)])
            turn += 1
        return self.counts


async def hold(
    target: str, seconds: float, count: int, begin: Callable[[grpc.aio.Channel], Any], *, again_s: float = AGAIN_S
) -> Counts:
    """Hold so many calls on several connections, each begun again when it ends; how often they were begun and ended."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    counts = {"begun": 0, "ended": 0}

    async def hold_one(channel: grpc.aio.Channel) -> None:
        while True:
            counts["begun"] += 1
            await begin(channel).code()
            counts["ended"] += 1
            await asyncio.sleep(again_s)

    channels = [grpc.aio.insecure_channel(target, options) for _ in range(HOLDING_CONNECTIONS)]
    tasks = []
    end_s = time.monotonic() + seconds
    for index in range(count):
        tasks.append(asyncio.create_task(hold_one(channels[index % len(channels)])))
        await asyncio.sleep(BURST_PAUSE_S if index % BURST_COUNT == 0 else 0)
    await asyncio.wait(tasks, timeout=max(1.0, end_s - time.monotonic()))
    return counts
