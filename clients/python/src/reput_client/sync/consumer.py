# SPDX-License-Identifier: Apache-2.0
"""Consumer: follows the queues of a topic, one Subscribe stream and one thread per queue.

One condition guards the deliveries. A reader that was replaced (by `seek`) or stopped may still be in a call; what it
delivers afterwards is dropped.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
from reput.indexer.v1.queue_service_pb2 import SubscribeResponse

from reput_client.core.consuming import SUBSCRIBE_RESPONSE_COUNT_MAX, Positions, subscribe
from reput_client.core.errors import ReputError, from_rpc_error, stream_ended
from reput_client.core.types import Message, Place, check_place, check_queue_offset
from reput_client.sync.channels import Channels
from reput_client.sync.closing import Closing
from reput_client.sync.parts import Groups
from reput_client.sync.start import find_start


class Consumer(Closing):
    """Iterates over the messages of a topic as they are stored, each queue in order. Made by `Client.consumer`.

    Streams that break are opened again where they were. At least once: after a restart a consumer of a group begins at
    the last commit. Use it from one thread; `close` may be called from another one and ends the iteration.
    """

    def __init__(
        self,
        channels: Channels,
        *,
        topic: str,
        group: str | None,
        queue_ids: Iterable[int] | None,
        start: Place,
        tags: str,
        where: str,
    ) -> None:
        check_place(start)
        self.topic, self.group = topic, group
        self._channels, self._tags, self._where = channels, tags, where
        self._inbox = _Inbox()
        self._is_closed = False
        self._positions = Positions(topic)
        self._positions.begin(find_start(channels, topic, group, queue_ids, start))
        self._readers = {queue_id: self._read(queue_id, at) for queue_id, at in self._positions.all().items()}

    def __repr__(self) -> str:
        return f"Consumer({self.topic!r}, group={self.group!r}, positions={self.positions()})"

    def poll(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, None after `timeout_s` without one, or when the consumer is closed.

        Raises ReputError if a stream broke and could not be opened again.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._inbox.changed:
            while (message := self._positions.pop()) is None:
                # What arrives may be without messages, and does not make the wait any longer.
                left_s = None if end_s is None else end_s - time.monotonic()
                if not self._inbox.changed.wait_for(lambda: bool(self._inbox.deliveries) or self._is_closed, left_s):
                    return None
                if self._is_closed:
                    return None
                self._enter_oldest()
            return message

    def __iter__(self) -> Iterator[Message]:
        while (message := self.poll()) is not None:
            yield message

    def positions(self) -> dict[int, int]:
        """Return the next queue offset of each queue: behind the last message that was handed out."""
        with self._inbox.changed:
            return self._positions.all()

    def commit(self) -> None:
        """Store the group's offsets: all messages handed out so far are done. Raises ValueError without a group."""
        if self.group is None:
            raise ValueError("a consumer without a group has nothing to commit to")
        with self._inbox.changed:
            offsets = self._positions.uncommitted()
        if offsets:
            Groups(self._channels).commit(self.group, offsets)
            self._positions.committed(offsets)

    def seek(self, queue_id: int, queue_offset: int) -> None:
        """Go on at another place of a queue. Raises KeyError for a queue that is not consumed."""
        check_queue_offset(queue_offset)
        with self._inbox.changed:
            old = self._readers[queue_id]
            old.stop()
            self._inbox.deliveries = deque(pair for pair in self._inbox.deliveries if pair[0] is not old)
            self._positions.move(queue_id, queue_offset)
            self._readers[queue_id] = self._read(queue_id, queue_offset)
            self._inbox.changed.notify_all()

    def close(self) -> None:
        """End all streams. Commits nothing. May be repeated."""
        with self._inbox.changed:
            self._is_closed = True
            for reader in self._readers.values():
                reader.stop()
            self._inbox.changed.notify_all()

    def _read(self, queue_id: int, queue_offset: int) -> "_Reader":
        """Begin to follow a queue."""

        def open_stream(queue_offset: int) -> Any:
            return self._channels.open(subscribe(self.topic, queue_id, queue_offset, self._tags, self._where))

        return _Reader(self._inbox, self._channels, open_stream, queue_id, queue_offset)

    def _enter_oldest(self) -> None:
        """Take note of the oldest delivery. Raises its error."""
        reader, item = self._inbox.deliveries.popleft()
        if isinstance(item, ReputError):  # who polls on goes on there
            self._readers[reader.queue_id] = self._read(reader.queue_id, self._positions.all()[reader.queue_id])
            raise item
        reader.waiting_count -= 1
        self._inbox.changed.notify_all()
        self._positions.add(reader.queue_id, item)


class _Inbox:
    """Where the readers of one consumer put what they got. `changed` guards it and everything around it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.deliveries: deque[tuple[_Reader, SubscribeResponse | ReputError]] = deque()


class _Reader:
    """The thread that follows one queue. `open_stream` begins a stream at a queue offset."""

    def __init__(
        self, inbox: _Inbox, channels: Channels, open_stream: Callable[[int], Any], queue_id: int, queue_offset: int
    ) -> None:
        self.waiting_count = 0
        self._inbox, self._channels, self._open_stream = inbox, channels, open_stream
        self.queue_id, self._queue_offset = queue_id, queue_offset
        self._is_stopped = False
        self._call: Any = None
        threading.Thread(target=self._run, name=f"reput-consumer-{queue_id}", daemon=True).start()

    def stop(self) -> None:
        """End the stream. Called under the inbox's lock."""
        self._is_stopped = True
        if self._call is not None:
            self._call.cancel()

    def _run(self) -> None:
        attempt = 0
        while True:
            error: ReputError = stream_ended()
            with self._inbox.changed:
                if self._is_stopped:
                    return
                target = self._channels.target("indexer")
                self._call = self._open_stream(self._queue_offset)
            try:
                for response in self._call:
                    attempt = 0
                    self._queue_offset = response.next_queue_offset
                    if not self._put(response):
                        return
            except grpc.RpcError as failure:
                error = from_rpc_error(failure, "indexer")
            self._channels.on_failure("indexer", target, error)
            delay_s = self._channels.retry.delay_s(attempt, error)
            if delay_s is None:
                self._put(error)
                return
            attempt += 1
            with self._inbox.changed:
                self._inbox.changed.wait_for(lambda: self._is_stopped, delay_s)

    def _put(self, item: SubscribeResponse | ReputError) -> bool:
        """Hand something over, once there is room. Returns False if the reader was stopped."""
        with self._inbox.changed:
            self._inbox.changed.wait_for(lambda: self._is_stopped or self.waiting_count < SUBSCRIBE_RESPONSE_COUNT_MAX)
            if self._is_stopped:
                return False
            self.waiting_count += 1
            self._inbox.deliveries.append((self, item))
            self._inbox.changed.notify_all()
            return True
