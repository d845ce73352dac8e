# SPDX-License-Identifier: Apache-2.0
"""EarlyEnds: the ends of calls whose requests have not ended.

Invariants: a refusal is sent when its caller has sent data, at the latest after `SPEAK_S`; a request is cut only after
its answer was sent, and the caller had time to see it. Callers: the connection, on its loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from libs.runtime.http2.heads import Fields

CUT_S: Final = 0.5
"""Time from the end of an answer until the stream of its request is reset. Most callers stop by themselves."""

SPEAK_S: Final = 0.1
"""Maximum time that a refusal waits for the first message of its call. When the end arrives before the first message
was sent, gRPC's asyncio client for Python takes it for its own error, and reports INTERNAL."""


class EarlyEnds:
    """The early ends of the calls of a connection. `say` answers a stream with its end alone.

    `cut` stops the request of a stream if its answer was sent, and returns whether it stopped the request.
    """

    def __init__(self, say: Callable[[int, Fields], None], cut: Callable[[int], bool]) -> None:
        self._say, self._cut = say, cut
        self._loop = asyncio.get_running_loop()
        self._refusals: dict[int, tuple[Fields, bool]] = {}
        """Ends of calls whose callers have sent only their head, and whether their request has ended with it."""
        self._early: dict[int, float] = {}
        """Maps each stream whose answer has ended to the time at which its request is cut."""
        self._timer: asyncio.TimerHandle | None = None

    def refuse(self, stream_id: int, fields: Fields, *, has_spoken: bool, is_last: bool) -> None:
        """Answer a call with its end alone. `is_last`: its request has ended."""
        self._refusals[stream_id] = fields, is_last
        if has_spoken:
            self.heard(stream_id)
        else:
            self._loop.call_later(SPEAK_S, self.heard, stream_id)

    def heard(self, stream_id: int) -> None:
        """Send the refusal of a stream, because its caller has sent data or the wait is over."""
        found = self._refusals.pop(stream_id, None)
        if found is not None:
            fields, is_last = found
            self._say(stream_id, fields)
            if not is_last:
                self.note_early(stream_id)

    def note_early(self, stream_id: int) -> None:
        """Record an answer that ends before its request."""
        self._early[stream_id] = self._loop.time() + CUT_S
        if self._timer is None:
            self._timer = self._loop.call_later(CUT_S, self._cut_some)

    def forget(self, stream_id: int) -> None:
        """Forget a closed stream."""
        self._refusals.pop(stream_id, None)
        self._early.pop(stream_id, None)

    def close(self) -> None:
        """Forget all streams."""
        self._refusals.clear()
        self._early.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _cut_some(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        for stream_id, due_s in list(self._early.items()):
            if due_s <= now_s and self._cut(stream_id):
                self._early.pop(stream_id, None)
        if self._early:
            self._timer = self._loop.call_later(CUT_S, self._cut_some)
