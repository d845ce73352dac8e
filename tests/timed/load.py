# SPDX-License-Identifier: Apache-2.0
"""Sends messages that wait for random times, reads the delivered messages, and compares."""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import grpc
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.indexer.v1.queue_service_pb2 import PullRequest

from tests.support import served_commitlog, served_indexer
from tests.support.patience import LIMIT_S

TOPIC = "reminders"
BATCH_COUNT = 100


@dataclass(frozen=True)
class Outcome:
    """The result of a run. Times are in milliseconds, by the store times of the delivered messages."""

    late_ms: Sequence[int]
    """Ascending. Early messages are below 0."""
    twice: Sequence[str]
    missing: Sequence[str]

    @property
    def early_count(self) -> int:
        """The number of messages that were delivered before their time."""
        return sum(late < 0 for late in self.late_ms)

    def late(self, percent: float) -> int:
        """Return the delay that this many percent of the messages did not exceed."""
        return self.late_ms[min(len(self.late_ms) - 1, int(len(self.late_ms) * percent / 100))]


@dataclass
class Load:
    """A sender and a reader of the same store."""

    log: served_commitlog.Client
    index: served_indexer.Client
    chance: random.Random
    due_ms: dict[str, int] = field(default_factory=dict)
    """Due time of each acknowledged message, by its unique id."""

    async def send(self, count: int, *, least_ms: int, most_ms: int) -> None:
        """Send this many messages, in batches.

        A batch whose answer is lost is not sent again, and its messages are not in `due_ms`.
        """
        for start in range(0, count, BATCH_COUNT):
            now_ms = time.time_ns() // 1_000_000
            dues = [now_ms + self.chance.randint(least_ms, most_ms) for _ in range(min(BATCH_COUNT, count - start))]
            names = [f"{start}-{index}-{self.chance.getrandbits(64):x}" for index in range(len(dues))]
            messages = [
                AppendMessage(
                    topic=TOPIC, body=name.encode(), properties={"UNIQ_KEY": name, "TIMER_DELIVER_MS": str(due_ms)}
                )
                for name, due_ms in zip(names, dues, strict=True)
            ]
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self.log.append.Append(AppendRequest(messages=messages))
                self.due_ms.update(zip(names, dues, strict=True))

    async def until_delivered(self, without: Iterable[str] = ()) -> Outcome:
        """Wait until all messages except `without` are delivered, and return the outcome."""
        wanted = self.due_ms.keys() - set(without)
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    found = await self.delivered()
                    if wanted <= found.keys():
                        return self._outcome(found, wanted)
                await asyncio.sleep(0.2)

    def _outcome(self, found: Mapping[str, list[int]], wanted: Iterable[str]) -> Outcome:
        known = [
            (self.due_ms[name], time_ms) for name, times in found.items() if name in self.due_ms for time_ms in times
        ]
        return Outcome(
            late_ms=sorted(time_ms - due_ms for due_ms, time_ms in known),
            twice=[name for name, times in found.items() if len(times) > 1],
            missing=[name for name in wanted if name not in found],
        )

    async def delivered(self) -> dict[str, list[int]]:
        """Return the store times of the topic's messages, by unique id."""
        found: dict[str, list[int]] = {}
        for queue_id in range(8):
            queue_offset = 0
            while True:
                request = PullRequest(
                    topic=TOPIC, queue_id=queue_id, queue_offset=queue_offset, message_count_max=4_096,
                    size_bytes_max=8 << 20,
                )  # fmt: skip
                answer = await self.index.queues.Pull(request)
                for one in answer.messages:
                    found.setdefault(one.properties["UNIQ_KEY"], []).append(one.store_time_ms)
                if answer.next_queue_offset <= queue_offset:
                    break
                queue_offset = answer.next_queue_offset
        return found
