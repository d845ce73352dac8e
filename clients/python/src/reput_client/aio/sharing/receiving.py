# SPDX-License-Identifier: Apache-2.0
"""AsyncReceiving: the base of all share consumers: the loop over messages, callbacks, and the ways to settle."""

from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Sequence

from reput_client.aio.closing import AsyncClosing
from reput_client.aio.sharing.crew import AsyncCrew, AsyncFlag, Handler
from reput_client.core.errors import ReputError
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.sharing import calls
from reput_client.core.sharing.holding import Received
from reput_client.core.telemetry.log import log
from reput_client.core.telemetry.tracing import find_tracing, processing

LOOK_S = 0.1
"""The interval at which `run` looks for a close while messages wait for a callback to end."""
ITERATION_COUNT = 16
"""Most messages that an iteration receives in a call."""


class AsyncReceiving(AsyncClosing):
    """The base of share consumers, of a single store and of all shards. `timeout_s` is the client's time-out."""

    def __init__(self, topic: str, group: str, timeout_s: float) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic is {topic!r}: expected a str")
        self.topic, self.group = topic, group
        self._timeout_s, self._birthplace = timeout_s, Birthplace()
        self._waiting: deque[Received] = deque()
        self._crew: AsyncCrew | None = None
        self._closed = AsyncFlag()
        self._failed_count = 0
        self._ended_by: BaseException | None = None
        """The SystemExit or KeyboardInterrupt with which a callback ended."""
        self._tracing = find_tracing()

    @abstractmethod
    def holds(self, received: Received) -> bool:
        """Return whether a message is held: it is not settled, and its lease is extended."""

    @abstractmethod
    def drop(self, received: Received) -> None:
        """Stop holding a message, which then comes again when its lease is over."""

    @abstractmethod
    async def _receive_patiently(self, count: int) -> list[Received]:
        """Return messages, or an empty list after a temporary failure and its delay. Raises ReputError."""

    @abstractmethod
    async def _settle(self, verb: calls.Verb, received: Sequence[Received], seconds: float | None = None) -> None:
        """Settle messages. Raises the error of the first message that can't be settled."""

    @abstractmethod
    async def _end(self) -> None:
        """End the work in the background."""

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

    async def close(self) -> None:
        """Stop receiving, and give back waiting messages at once. Waits for the callbacks of `run`.

        Messages that the program has received can still be settled; their lease is no longer extended. May be repeated.
        """
        if not self._birthplace.is_here:  # its process closes it
            return
        self._closed.set()
        if self._crew is not None:
            await self._crew.wait_over(self._timeout_s)
        else:
            await self._release()
            await self._end()

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
        if not self.holds(received) or (verb == "ack" and not acks):
            return
        try:
            await self._settle(verb, [received])
        except ReputError as error:
            self.drop(received)  # no callback works on it any more
            log.warning("a message of %s comes again: %s", self.topic, error)

    async def _release(self) -> None:
        """Give back waiting messages. A message that can't be given back comes again when its lease is over."""
        received = list(self._waiting)
        self._waiting.clear()
        try:
            await self._settle("release", received)
        except ReputError as error:
            log.warning("%d messages of %s come again later: %s", len(received), self.topic, error)
