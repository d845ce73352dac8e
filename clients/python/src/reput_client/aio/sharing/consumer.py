# SPDX-License-Identifier: Apache-2.0
"""AsyncShareConsumer: messages of a topic that the members of a group share, each settled separately."""

import time
from collections.abc import Sequence

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.sharing.crew import AsyncTicker
from reput_client.aio.sharing.receiving import AsyncReceiving
from reput_client.aio.sharing.settling import AsyncSettler
from reput_client.core.errors import NotFoundError, ReputError
from reput_client.core.retry import RetryPolicy
from reput_client.core.sharing import calls
from reput_client.core.sharing.holding import EXTENSIONS_PER_TIME, POLL_S, HeldMessages, Received, ShareSettings
from reput_client.core.sharing.outage import AT_ONCE, Outage
from reput_client.core.sharing.values import SharePolicy, get_group
from reput_client.core.telemetry.log import log
from reput_client.core.telemetry.metrics import ShareConsumerMetrics


class AsyncShareConsumer(AsyncReceiving):
    """Receives messages of a topic that its group shares. Made by `AsyncClient.share_consumer`.

    Each message is held by a single consumer until it is settled, or until its lease is over. At least once: a message
    that is not settled comes again, to any member of the group. The consumer extends the lease by itself while it holds
    a message. In a group with `is_ordered`, messages with the same sharding key are processed in sequence, with any
    number of members and callbacks.

    Methods that settle raise ReputError for the first message that can't be settled, with HANDLE_OUTDATED if its lease
    was over and another member has received it. The other messages are settled all the same. Concurrent calls of these
    methods, for all share consumers of a client, share calls to Delivery. Each ends with its own outcome.
    """

    def __init__(self, channels: AsyncChannels, settler: AsyncSettler, topic: str, settings: ShareSettings) -> None:
        super().__init__(topic, settings.group, channels.options.timeout_s)
        self._channels, self._settings, self._settler = channels, settings, settler
        self._held = HeldMessages(settings.hold_s_max)
        self._invisible_s = 0.0
        self._ticker: AsyncTicker | None = None
        self._outage = Outage(f"receiving from {topic} for group {self.group}", channels.retry)
        self._received_count = 0

    def __repr__(self) -> str:
        return f"AsyncShareConsumer({self.topic!r}, group={self.group!r}, held={self._held.count})"

    async def receive(
        self, count: int = 32, wait_s: float = POLL_S, *, retry: RetryPolicy | None = None
    ) -> list[Received]:
        """Return up to `count` messages: waits for the first up to `wait_s` seconds (30 at most). Empty after a close.

        Raises ReputError when the retries of `retry` are used up. None is the client's policy.
        """
        return await self._receive(count, wait_s, retry or self._channels.retry)

    def holds(self, received: Received) -> bool:
        """Return whether a message is held: it is not settled, and its lease is extended."""
        return self._held.has(received)

    def drop(self, received: Received) -> None:
        """Stop holding a message, which then comes again when its lease is over."""
        self._held.drop([received.handle])

    def metrics(self) -> ShareConsumerMetrics:
        """Return the counters of this consumer."""
        return ShareConsumerMetrics(
            message_count=self._received_count,
            held_message_count=self._held.count,
            failed_message_count=self._failed_count,
            failed_receive_count=self._outage.failed_count,
            outage_count=self._outage.outage_count,
            outage_s=self._outage.lasts_s(time.monotonic()),
        )

    async def _receive(self, count: int, wait_s: float, retry: RetryPolicy) -> list[Received]:
        if count < 1:
            raise ValueError(f"count is {count}: expected 1 or more")
        self._birthplace.check("share consumer")
        if not self._closed.is_set():
            await self._begin(retry)
        if self._closed.is_set():
            return []
        call = calls.receive(self.topic, self._settings, count, self._invisible_s, wait_s)
        received = await self._channels.run(call, retry)
        self._received_count += len(received)
        self._held.add(received, time.monotonic())
        if self._tracing is not None and received:
            self._tracing.received([one.message for one in received], self.group, is_batch=True)
        return received

    async def _receive_patiently(self, count: int) -> list[Received]:
        """Return messages, or an empty list after a temporary failure and its delay. Raises ReputError."""
        try:
            received = await self._receive(count, self._settings.poll_s, AT_ONCE)
        except ReputError as error:
            delay_s = self._outage.on_failure(error, time.monotonic())
            if delay_s is None:
                raise
            await self._closed.wait_for(delay_s)
            return []
        self._outage.on_success(time.monotonic())
        return received

    async def _begin(self, retry: RetryPolicy) -> None:
        """Determine how long a lease lasts, and start to extend leases."""
        if self._ticker is not None:
            return
        invisible_s = self._settings.invisible_s or await self._policy_s(retry)
        if self._ticker is None and not self._closed.is_set():  # otherwise another receive or a close came first
            self._invisible_s = invisible_s
            self._ticker = AsyncTicker(invisible_s / EXTENSIONS_PER_TIME / 2, self._extend_due)

    async def _end(self) -> None:
        if self._ticker is not None:
            await self._ticker.close()

    async def _policy_s(self, retry: RetryPolicy) -> float:
        """Return the lease time of the group's policy in seconds. The consumer reads it a single time."""
        try:
            group = await self._channels.run(get_group(self.group), retry)
        except NotFoundError:
            return SharePolicy().invisible_s
        return group.policy.invisible_s

    async def _settle(self, verb: calls.Verb, received: Sequence[Received], seconds: float | None = None) -> None:
        """Settle messages. Raises the error of the first message that can't be settled."""
        self._birthplace.check("share consumer")
        handles, failures = [one.handle for one in received], list[ReputError]()
        for first in range(0, len(handles), calls.ENTRY_COUNT_MAX):
            some = handles[first : first + calls.ENTRY_COUNT_MAX]
            errors = await self._settler.settle(calls.entries(verb, some, seconds))
            if verb != "extend":
                self._held.drop(some)
            failures += [error for error in errors if error is not None]
        if failures:
            raise failures[0]

    async def _extend_due(self) -> None:
        """Extend the leases that need more time."""
        handles = self._held.due(time.monotonic(), self._invisible_s)
        for first in range(0, len(handles), calls.ENTRY_COUNT_MAX):
            some = handles[first : first + calls.ENTRY_COUNT_MAX]
            try:
                errors = await self._settler.settle(calls.entries("extend", some, self._invisible_s))
            except ReputError as error:
                log.warning("messages of %s may come again: %s", self.topic, error)
            else:
                self._held.drop([handle for handle, error in zip(some, errors, strict=True) if error is not None])
