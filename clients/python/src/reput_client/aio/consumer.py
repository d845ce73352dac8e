# SPDX-License-Identifier: Apache-2.0
"""AsyncConsumer: messages of topics as they are stored, each queue in order."""

import time
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncClosing
from reput_client.aio.following import Answer, AsyncFollower
from reput_client.aio.parts import AsyncGroups
from reput_client.aio.start import bounds, committed, find_start, places
from reput_client.aio.streams import at_once
from reput_client.core.consuming import MessageFilter, Positions, topics_of
from reput_client.core.errors import ReputError, ServerError
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.telemetry.log import log
from reput_client.core.telemetry.metrics import ConsumerMetrics
from reput_client.core.telemetry.tracing import find_tracing
from reput_client.core.types import Message, Place, Queue, Selection, TopicQueue, check_place, check_queue_offset


class AsyncConsumer(AsyncClosing):
    """Iterates over the messages of topics as they are stored, each queue in order. Made by `AsyncClient.consumer`.

    Streams that break are opened again at the same position. At least once: after a restart a consumer of a group
    begins at the last commit, and later messages come again. Used by a single caller at a time. Only `close` may be
    called during another call; it ends that caller's iteration.

    Methods with `*queues` take topics, or `("orders", 0)` for a single queue, or nothing for all consumed queues. They
    raise KeyError for a queue or topic that is not consumed.
    """

    def __init__(
        self,
        channels: AsyncChannels,
        *,
        topics: str | Iterable[str],
        group: str | None,
        queue_ids: Iterable[int] | None,
        start: Place,
        tags: str,
        where: str,
        auto_commit_s: float | None,
    ) -> None:
        check_place(start)
        if auto_commit_s is not None and group is None:
            raise ValueError("auto_commit_s needs a group, whose offsets are committed")
        if auto_commit_s is not None and auto_commit_s < 0:
            raise ValueError(f"auto_commit_s is {auto_commit_s}: expected 0 seconds or more")
        self.topics, self.group = topics_of(topics), group
        self._channels, self._birthplace = channels, Birthplace()
        self._queue_ids, self._start = queue_ids, start
        self._auto_commit_s, self._commit_at_s = auto_commit_s, 0.0
        self._follower, self._tracing = AsyncFollower(channels, MessageFilter(tags, where)), find_tracing()
        self._positions = Positions()
        self._is_begun = False
        at_once(self._begin)

    def __repr__(self) -> str:
        where = {tuple(queue): queue_offset for queue, queue_offset in self._positions.all().items()}
        return f"AsyncConsumer({', '.join(self.topics)}, group={self.group!r}, positions={where})"

    async def poll(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, None after `timeout_s` without a message, or when the consumer is closed.

        Raises ReputError if a stream broke and could not be opened again, or if a topic does not exist.
        """
        await self._before_poll()
        message = self._positions.pop()
        if message is None:
            message = await self._next(timeout_s)
        if self._tracing is not None and message is not None:
            self._tracing.received([message], self.group, is_batch=False)
        return message

    async def poll_many(self, count: int = 500, timeout_s: float | None = None) -> list[Message]:
        """Return up to `count` messages: waits for the first as `poll` does, and adds messages that have arrived."""
        if count < 1:
            raise ValueError(f"count is {count}: expected 1 or more")
        await self._before_poll()
        message = await self._next(timeout_s)
        messages: list[Message] = []
        while message is not None:
            messages += (message, *self._positions.take(count - len(messages) - 1))
            message = self._at_hand() if len(messages) < count else None
        if self._tracing is not None and messages:
            self._tracing.received(messages, self.group, is_batch=True)
        return messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.poll()) is not None:
            yield message

    async def positions(self) -> dict[TopicQueue, int]:
        """Return the next queue offset of each queue: the offset after the last message that was returned."""
        await self._begin()
        return self._positions.all()

    async def seek(self, queue: tuple[str, int], queue_offset: int) -> None:
        """Continue at another queue offset of a queue. Raises KeyError for a queue that is not consumed."""
        check_queue_offset(queue_offset)
        if queue not in await self.positions():
            raise KeyError(queue)
        self._move(TopicQueue(*queue), queue_offset)

    async def seek_to(self, place: Place, *queues: Selection) -> None:
        """Continue at the beginning of queues ("earliest"), at their end ("latest"), or at a store time."""
        check_place(place)
        await self._begin()
        for queue, queue_offset in (await places(self._channels, self._positions.select(queues), place)).items():
            self._move(queue, queue_offset)

    async def pause(self, *queues: Selection) -> None:
        """Stop fetching and returning messages of queues until `resume`. Positions stay. `seek` still moves them."""
        await self._begin()
        for queue in self._positions.select(queues):
            self._positions.paused.add(queue)
            self._move(queue, self._positions.of(queue))

    async def resume(self, *queues: Selection) -> None:
        """Continue with paused queues, each at its position."""
        await self._begin()
        for queue in self._positions.select(queues):
            if queue in self._positions.paused:
                self._positions.paused.discard(queue)
                self._move(queue, self._positions.of(queue))

    def paused(self) -> set[TopicQueue]:
        """Return the queues that are paused."""
        return set(self._positions.paused)

    async def bounds(self, *queues: Selection) -> dict[TopicQueue, Queue]:
        """Return the current bounds of queues: `min_queue_offset` and `max_queue_offset`, without times."""
        await self._begin()
        return await bounds(self._channels, self._positions.select(queues))

    async def lag(self, *queues: Selection) -> dict[TopicQueue, int]:
        """Return the number of entries between the position and the current end of queues. It ignores the tags."""
        ends = await self.bounds(*queues)
        return {queue: max(0, end.max_queue_offset - self._positions.of(queue)) for queue, end in ends.items()}

    async def commit(self) -> None:
        """Commit the group's offsets: all messages returned so far are done. Raises ValueError without a group."""
        group = self._group_to("commit to")
        offsets = self._positions.uncommitted()
        if offsets:
            await AsyncGroups(self._channels).commit(group, offsets)
            self._positions.committed(offsets)

    async def committed(self, *queues: Selection) -> dict[TopicQueue, int]:
        """Return the committed offsets of the group, for queues that have an offset. Raises ValueError without a group.

        Each queue costs a call.
        """
        group = self._group_to("ask for")
        await self._begin()
        return await committed(self._channels, group, self._positions.select(queues))

    def metrics(self) -> ConsumerMetrics:
        """Return the counters of this consumer."""
        return ConsumerMetrics(
            message_count=self._positions.handed_out_count,
            answer_count=self._positions.answer_count,
            answer_bytes=self._positions.answer_bytes,
            waiting_message_count=self._positions.waiting_count + self._follower.waiting_count,
            broken_stream_count=self._follower.broken_count,
        )

    async def close(self) -> None:
        """End all streams. Commits nothing. May be repeated."""
        if not self._birthplace.is_here:  # its process closes it
            return
        await self._follower.close()

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        commits = kind is None and self._auto_commit_s is not None
        self._auto_commit_s = None
        await self.close()
        if commits:
            await self._commit_all()

    async def _begin(self) -> None:
        """Find the start positions, and follow the queues. Only the first call has an effect."""
        self._birthplace.check("consumer")
        if self._is_begun:
            return
        found = await find_start(self._channels, self.topics, self.group, self._queue_ids, self._start)
        self._positions.begin(found)
        self._is_begun = True
        if self._auto_commit_s is not None:
            self._commit_at_s = time.monotonic() + self._auto_commit_s
        for queue, queue_offset in found.items():
            self._follower.follow(queue, queue_offset)

    async def _before_poll(self) -> None:
        """Begin, and commit if the interval is over: messages that were returned before this poll are done."""
        if self._is_begun:
            self._birthplace.check("consumer")
        else:
            await self._begin()
        if self._auto_commit_s is not None and time.monotonic() >= self._commit_at_s:
            await self._commit_all()
            self._commit_at_s = time.monotonic() + self._auto_commit_s

    async def _commit_all(self) -> None:
        """Commit automatically. A failure is logged: the next commit includes the same offsets."""
        try:
            await self.commit()
        except ReputError as error:
            log.warning("offsets of group %s are not committed: %s", self.group, error)

    async def _next(self, timeout_s: float | None) -> Message | None:
        """Return the next message, None after `timeout_s` or when the consumer is closed. Raises ReputError."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (message := self._positions.pop()) is None:
            # An answer may have no messages, and does not extend the wait.
            delivery = await self._follower.next(None if end_s is None else end_s - time.monotonic())
            if delivery is None:
                return None
            error = self._enter(*delivery)
            if error is not None:
                raise error
        return message

    def _at_hand(self) -> Message | None:
        """Return the next message if it has arrived. After the error of a stream a new stream is opened."""
        while (message := self._positions.pop()) is None:
            delivery = self._follower.take()
            if delivery is None or self._enter(*delivery) is not None:
                return None
        return message

    def _enter(self, queue: TopicQueue, answer: Answer) -> ReputError | None:
        """Add the messages of an answer. After an error the queue is followed again, and the error is returned."""
        if not isinstance(answer, ReputError):
            try:
                self._positions.add(queue, answer)
            except ServerError as error:
                answer = error
            else:
                return None
        self._follower.follow(queue, self._positions.of(queue))
        return answer

    def _move(self, queue: TopicQueue, queue_offset: int) -> None:
        """Set a position, and follow the queue from there unless it is paused."""
        self._positions.move(queue, queue_offset)
        if queue in self._positions.paused:
            self._follower.leave(queue)
        else:
            self._follower.follow(queue, queue_offset)

    def _group_to(self, purpose: str) -> str:
        if self.group is None:
            raise ValueError(f"a consumer without a group has nothing to {purpose}")
        return self.group
