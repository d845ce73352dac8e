# SPDX-License-Identifier: Apache-2.0
"""Feed: the next messages of a queue for a group, read ahead of the receives.

It reads while its subscription is open, and while it holds less than COUNT / 2 messages and less than SIZE_BYTES.
Invariants: each message is taken once, in the order of the queue; `stop` drops the messages that were read ahead, after
a change of the filter or of the position, too; a pull that is refused is not repeated.
Callers: the event loop's thread. Memory: SIZE_BYTES and a message; all feeds together: the limit of ReadAhead, and a
message for each feed.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

from libs.machine.loop import SupervisedLoop
from libs.machine.trouble import Trouble
from libs.requests.errors import DependencyUnavailable, RequestRefused, TopicNotFound
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Found, Wanted
from services.delivery.engine.ports.waits import BEHIND_S, READ_WAIT_S

COUNT, SIZE_BYTES = 256, 1 << 20


class FeedFailure(Struct, frozen=True):
    """The error that ends the reading of a queue, and the queue offset of the next message."""

    error: BaseException
    queue_offset: int


class ReadAhead(Struct):
    """The bytes that all feeds and caches hold now, their limit, and the trouble that all feeds share."""

    size_bytes_max: int = 128 << 20
    size_bytes: int = 0
    trouble: Trouble = field(default_factory=lambda: Trouble("reading ahead"))

    @property
    def is_enough(self) -> bool:
        """Whether the limit is reached: then a feed reads a single message, so that receives still get messages."""
        return self.size_bytes >= self.size_bytes_max


class Feed:
    """The feed of a queue. `start` it; `stop` it in the end.

    `on_news` is called when there is a message to take, `on_begin` with the queue and its first offset after a read.
    """

    def __init__(
        self,
        index: Index,
        topic: str,
        queue_id: int,
        start: int,
        *,
        wanted: Wanted,
        ahead: ReadAhead,
        on_news: Callable[[], None],
        on_begin: Callable[[int, int], None],
    ) -> None:
        self.wanted = wanted
        self.size_bytes = 0
        """Size of the messages that it holds."""
        self._ahead = ahead
        self._index = index
        self._topic, self._queue_id = topic, queue_id
        self._on_news, self._on_begin = on_news, on_begin
        self._read_to = start
        self._found: deque[Found] = deque()
        self._room = asyncio.Event()
        self.failure: RequestRefused | None = None
        """Why the index refuses this pull. It would refuse it again."""
        self._loop = SupervisedLoop(
            f"feed of {topic}/{queue_id}",
            self._step,
            backoff_ms_max=2_000,
            expected_errors=(DependencyUnavailable, TopicNotFound),
            trouble=ahead.trouble,
        )

    def start(self) -> None:
        """Begin to read ahead."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop reading. The messages that were read are dropped, also if the caller is cancelled during the wait."""
        try:
            await self._loop.stop()
        finally:
            self._found.clear()
            self._hold(-self.size_bytes)

    @property
    def next(self) -> int:
        """The queue offset of the next message to take, or of the next read if the feed is empty."""
        return self._found[0].queue_offset if self._found else self._read_to

    @property
    def error(self) -> BaseException | None:
        """Why no further message can be read, None if reading works or the feed still has messages."""
        return None if self._found else self.failure or self._loop.last_error

    def peek(self) -> Found | None:
        """Return the next message without taking it, None if there is none."""
        return self._found[0] if self._found else None

    def take(self) -> Found:
        """Take the next message."""
        found = self._found.popleft()
        self._hold(-found.size_bytes)
        if not self._is_full:
            self._room.set()
        return found

    def drop_below(self, queue_offset: int) -> None:
        """Drop the messages below this queue offset: they are gone."""
        while self._found and self._found[0].queue_offset < queue_offset:
            self.take()

    @property
    def _is_full(self) -> bool:
        is_enough = len(self._found) >= COUNT // 2 or self.size_bytes >= SIZE_BYTES
        return is_enough or (bool(self._found) and self._ahead.is_enough)

    def _hold(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._ahead.size_bytes += size_bytes

    async def _step(self) -> None:
        """Wait until there is room, then read messages; wait for the first message."""
        while self._is_full:
            self._room.clear()
            await self._room.wait()
        try:
            pulled = await self._index.pull(
                self._topic,
                self._queue_id,
                self._read_to,
                wanted=self.wanted,
                count=1 if self._ahead.is_enough else COUNT,
                size_bytes=SIZE_BYTES // 2,
                wait_s=READ_WAIT_S,
            )
        except RequestRefused as error:
            self.failure = error
            self._on_news()
            await asyncio.Event().wait()  # until it is stopped
            return
        self._on_begin(self._queue_id, pulled.min_queue_offset)
        self._found += pulled.found
        self._hold(sum(found.size_bytes for found in pulled.found))
        if pulled.next_queue_offset > self._read_to:
            self._read_to = pulled.next_queue_offset
            if pulled.found:
                self._on_news()
        elif pulled.next_queue_offset < self._read_to:
            await asyncio.sleep(BEHIND_S)  # these were delivered before: the index is being built again
