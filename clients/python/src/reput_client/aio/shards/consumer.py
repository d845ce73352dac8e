# SPDX-License-Identifier: Apache-2.0
"""AsyncShardedShareConsumer: messages of a topic at all shards that the members of a group share."""

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from reput_client.aio.shards.works import AsyncWorks, together
from reput_client.aio.sharing.consumer import AsyncShareConsumer
from reput_client.aio.sharing.receiving import AsyncReceiving
from reput_client.core.errors import ReputError
from reput_client.core.retry import RetryPolicy
from reput_client.core.shards.receiving import GRACE_S, SLICE_S, ShardReceived, ShardTurns
from reput_client.core.sharing import calls
from reput_client.core.sharing.holding import POLL_S, Received, ShareSettings
from reput_client.core.sharing.outage import AT_ONCE
from reput_client.core.telemetry.metrics import ShareConsumerMetrics


class AsyncShardedShareConsumer(AsyncReceiving):
    """Receives messages of a topic at all shards. Made by `AsyncShardedClient.share_consumer`.

    It has a share consumer for each shard, and settles each message at its own shard. A shard that is away does not
    hold up the others: it is logged, and asked again until it answers. In a group with `is_ordered` the messages with
    the same sharding key are processed in sequence, also while queues are split, moved or merged.

    A receive asks all shards, and returns when a shard has messages. Messages of other shards that come a little later
    wait here for the next receive, and are given back by `close`.
    """

    def __init__(
        self,
        parts: Mapping[str, AsyncShareConsumer],
        topic: str,
        settings: ShareSettings,
        *,
        retry: RetryPolicy,
        timeout_s: float,
    ) -> None:
        super().__init__(topic, settings.group, timeout_s)
        self._parts, self._settings = parts, settings
        self._arrived: deque[Received] = deque()
        self._works: AsyncWorks[list[Received]] = AsyncWorks()
        self._turns = ShardTurns(f"receiving from {topic} for group {self.group}", list(parts), retry)

    def __repr__(self) -> str:
        return f"AsyncShardedShareConsumer({self.topic!r}, group={self.group!r}, shards={list(self._parts)})"

    async def receive(
        self, count: int = 32, wait_s: float = POLL_S, *, retry: RetryPolicy | None = None
    ) -> list[Received]:
        """Return up to `count` messages: waits for the first up to `wait_s` seconds. Empty after a close.

        Raises the ReputError of a permanent refusal, and if no shard answers within `wait_s`. `retry` is the policy of
        the single calls to the shards; None repeats none, as the next receive asks again.
        """
        found = await self._receive(count, wait_s, retry or AT_ONCE)
        if not found and not self._closed.is_set() and (failure := self._turns.failure) is not None:
            raise failure
        return found

    def holds(self, received: Received) -> bool:
        """Return whether a message is held: it is not settled, and its lease is extended."""
        return self._part_of(received).holds(received)

    def drop(self, received: Received) -> None:
        """Stop holding a message, which then comes again when its lease is over."""
        self._part_of(received).drop(received)

    def metrics(self) -> ShareConsumerMetrics:
        """Return the counters of this consumer, over all shards."""
        parts, outages, now_s = [part.metrics() for part in self._parts.values()], self._turns.outages, time.monotonic()
        return ShareConsumerMetrics(
            message_count=sum(part.message_count for part in parts),
            held_message_count=sum(part.held_message_count for part in parts),
            failed_message_count=self._failed_count,
            failed_receive_count=sum(outage.failed_count for outage in outages),
            outage_count=sum(outage.outage_count for outage in outages),
            outage_s=max(outage.lasts_s(now_s) for outage in outages),
        )

    async def _receive(self, count: int, wait_s: float, retry: RetryPolicy) -> list[Received]:
        if count < 1:
            raise ValueError(f"count is {count}: expected 1 or more")
        self._birthplace.check("share consumer")
        end_s, share = time.monotonic() + wait_s, -(-count // len(self._parts))
        left_s = wait_s
        while not self._arrived and not self._closed.is_set() and left_s > -GRACE_S:
            if left_s >= 0:
                for shard in self._turns.due(time.monotonic()):
                    ask = partial(self._parts[shard].receive, share, min(left_s, SLICE_S), retry=retry)
                    self._works.start(shard, ask)
            if not self._works.is_busy:
                if left_s <= 0:
                    break
                await self._closed.wait_for(min(left_s, self._turns.wait_s(time.monotonic())))
            await self._take(max(left_s, 0.0) + GRACE_S)
            left_s = end_s - time.monotonic()
        return [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]

    async def _take(self, timeout_s: float) -> None:
        """Take the messages of calls that have ended. Waits for the first. Raises the error of a permanent refusal."""
        for shard, answer in await self._works.finished(timeout_s):
            now_s = time.monotonic()
            if isinstance(answer, ReputError):
                if (error := self._turns.on_failure(shard, answer, now_s)) is not None:
                    raise error
            else:
                self._turns.on_success(shard, now_s)
                self._arrived += [ShardReceived(one.message, one.attempt, one.handle, shard) for one in answer]

    async def _receive_patiently(self, count: int) -> list[Received]:
        return await self._receive(count, self._settings.poll_s, AT_ONCE)

    def _part_of(self, received: Received) -> AsyncShareConsumer:
        if not isinstance(received, ShardReceived):
            raise TypeError(f"{received!r} is no message that this consumer received")
        return self._parts[received.shard]

    async def _settle(self, verb: calls.Verb, received: Sequence[Received], seconds: float | None = None) -> None:
        """Settle messages at their shards. Raises the error of the first shard that has a message without success."""
        by_part: dict[AsyncShareConsumer, list[Received]] = {}
        for one in received:
            by_part.setdefault(self._part_of(one), []).append(one)
        times: dict[str, Any] = {"nack": {"delay_s": seconds}, "extend": {"invisible_s": seconds}}.get(verb, {})
        settles = [partial(getattr(part, verb), *own, **times) for part, own in by_part.items()]
        if len(settles) == 1:
            await settles[0]()
        elif settles:
            answers = await together({str(number): settle for number, settle in enumerate(settles)})
            for answer in answers.values():
                if isinstance(answer, ReputError):
                    raise answer

    async def _end(self) -> None:
        """Give back the messages that have arrived, and end the consumers of the shards."""
        await self._works.close()
        with contextlib.suppress(ReputError):
            await self._take(0.0)
        self._waiting.extend(self._arrived)
        self._arrived.clear()
        await self._release()
        for part in self._parts.values():
            await part.close()
