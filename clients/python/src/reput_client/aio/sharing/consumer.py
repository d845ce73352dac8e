# SPDX-License-Identifier: Apache-2.0
"""AsyncShareConsumer: messages of a topic that the members of a group share, each settled separately."""

import time
from collections import deque
from collections.abc import AsyncIterator, Sequence

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncClosing
from reput_client.aio.sharing.crew import AsyncCrew, AsyncFlag, AsyncTicker, Handler
from reput_client.aio.sharing.settling import AsyncSettler
from reput_client.core.errors import NotFoundError, ReputError
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.retry import RetryPolicy
from reput_client.core.sharing import calls
from reput_client.core.sharing.holding import EXTENSIONS_PER_TIME, POLL_S, HeldMessages, Received, ShareSettings
from reput_client.core.sharing.outage import AT_ONCE, Outage
from reput_client.core.sharing.values import SharePolicy, get_group
from reput_client.core.telemetry.log import log
from reput_client.core.telemetry.metrics import ShareConsumerMetrics
from reput_client.core.telemetry.tracing import find_tracing, processing

LOOK_S = 0.1
"""The interval at which `run` looks for a close while messages wait for a callback to end."""
ITERATION_COUNT = 16
"""Most messages that an iteration receives in a call."""


class AsyncShareConsumer(AsyncClosing):
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
        if not isinstance(topic, str):
            raise TypeError(f"topic is {topic!r}: expected a str")
        self.topic, self.group = topic, settings.group
        self._channels, self._settings, self._birthplace = channels, settings, Birthplace()
        self._held = HeldMessages(settings.hold_s_max)
        self._settler = settler
        self._waiting: deque[Received] = deque()
        self._invisible_s = 0.0
        self._ticker: AsyncTicker | None = None
        self._crew: AsyncCrew | None = None
        self._closed = AsyncFlag()
        self._outage = Outage(f"receiving from {topic} for group {self.group}", channels.retry)
        self._received_count = self._failed_count = 0
        self._ended_by: BaseException | None = None
        """The SystemExit or KeyboardInterrupt with which a callback ended."""
        self._tracing = find_tracing()

    def __repr__(self) -> str:
        return f"AsyncShareConsumer({self.topic!r}, group={self.group!r}, held={self._held.count})"

    async def receive(self, count: int = 32, wait_s: float = POLL_S) -> list[Received]:
        """Return up to `count` messages: waits for the first up to `wait_s` seconds (30 at most). Empty after a close.

        Raises ReputError when the client's retries are used up.
        """
        return await self._receive(count, wait_s, self._channels.retry)

    async def __aiter__(self) -> AsyncIterator[Received]:
        """Yield messages until `close`. Continues after an outage as `run` does."""
        while not self._closed.is_set():
            if not self._waiting:
                self._waiting.extend(await self._receive_patiently(ITERATION_COUNT))
            if self._waiting and not self._closed.is_set():
                yield self._waiting.popleft()
        await self._release()

    async def run(
        self, handle: Handler, *, concurrency: int = 1, prefetch: int | None = None, acks: bool = True
    ) -> None:
        """Call `handle` for each message until `close`, up to `concurrency` calls at the same time.

        When the callback returns, the message is acknowledged, unless the callback has settled it or `acks` is False.
        When the callback raises, the message is given back, and comes again after the delay of the group's policy.
        Up to `prefetch` messages wait here (None: as many as `concurrency`). At the end the waiting messages are given
        back at once, and `run` waits for the running callbacks.

        While a service is unavailable, or the topic does not exist, receiving is retried until it works. Raises
        ReputError for a permanent refusal. A callback that ends with SystemExit or KeyboardInterrupt ends the run,
        which raises this exception. Any other exception is only a failure of the callback's message.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: expected 1 or more")
        if self._crew is not None:
            raise RuntimeError("this consumer runs, or has run")
        crew = self._crew = AsyncCrew(concurrency)
        count = concurrency if prefetch is None else max(prefetch, 1)
        try:
            while not self._closed.is_set() and self._ended_by is None:
                if not self._waiting:
                    self._waiting.extend(await self._receive_patiently(count))
                elif await crew.has_room(LOOK_S) and not self._closed.is_set():
                    crew.start(self._work, handle, self._waiting.popleft(), acks)
        finally:
            self._closed.set()
            try:
                await self._release()
            finally:
                await crew.end()
                await self._end()
        if self._ended_by is not None:
            raise self._ended_by

    async def ack(self, *received: Received) -> None:
        """Acknowledge messages: they are done and do not come again."""
        await self._settle("ack", received)

    async def nack(self, *received: Received, delay_s: float | None = None) -> None:
        """Give messages back, to come again after `delay_s` seconds. None is the delay of the group's policy."""
        await self._settle("nack", received, delay_s)

    async def release(self, *received: Received) -> None:
        """Give back messages that were not processed: they come again at once, and this attempt does not count."""
        await self._settle("release", received)

    async def extend(self, *received: Received, invisible_s: float) -> None:
        """Extend the lease of messages to `invisible_s` seconds from now. The consumer also does it by itself."""
        await self._settle("extend", received, invisible_s)

    async def terminate(self, *received: Received) -> None:
        """Give up messages: they do not come again, and do not become dead letters."""
        await self._settle("terminate", received)

    async def bury(self, *received: Received) -> None:
        """Make messages dead letters of the group."""
        await self._settle("bury", received)

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

    async def close(self) -> None:
        """Stop receiving, and give back waiting messages at once. Waits for the callbacks of `run`.

        Messages that the program has received can still be settled; their lease is no longer extended. May be repeated.
        """
        if not self._birthplace.is_here:  # its process closes it
            return
        self._closed.set()
        if self._crew is not None:
            await self._crew.wait_over(self._channels.options.timeout_s)
        else:
            await self._release()
            await self._end()

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

    async def _work(self, handle: Handler, received: Received, acks: bool) -> None:
        verb: calls.Verb = "ack"
        try:
            with processing(self._tracing, received.message, self.group):
                await handle(received)
        except BaseException as failure:  # noqa: BLE001 - the callback is the program's own
            log.exception("a message of %s is given back: its callback failed", self.topic)
            self._failed_count += 1
            verb = "nack"
            if isinstance(failure, SystemExit | KeyboardInterrupt):
                self._ended_by = failure
        if not self._held.has(received) or (verb == "ack" and not acks):
            return
        try:
            await self._settle(verb, [received])
        except ReputError as error:
            self._held.drop([received.handle])  # no callback works on it any more
            log.warning("a message of %s comes again: %s", self.topic, error)

    async def _release(self) -> None:
        """Give back waiting messages. A message that can't be given back comes again when its lease is over."""
        received = list(self._waiting)
        self._waiting.clear()
        try:
            await self._settle("release", received)
        except ReputError as error:
            log.warning("%d messages of %s come again later: %s", len(received), self.topic, error)

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
