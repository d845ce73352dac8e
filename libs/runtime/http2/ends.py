# SPDX-License-Identifier: Apache-2.0
"""Ends: how calls end whose requests have not ended.

Invariants: a refusal waits until its caller has begun to speak, or a moment; a request is cut only after its answer was
out, and time was to see it. Callers: the connection, on its loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from libs.runtime.http2.heads import Fields

CUT_S: Final = 0.5
"""So long after the end of its answer a caller is told to send nothing more of its request. Most stop by themselves."""

SPEAK_S: Final = 0.1
"""So long a refusal waits for the first message of its call: gRPC's asyncio client for Python takes an end that comes
before it has sent one for an error of its own, and says INTERNAL."""


class Ends:
    """`say` answers a stream with its end alone. `cut` stops a stream's request if its answer is out, and tells so."""

    def __init__(self, say: Callable[[int, Fields], None], cut: Callable[[int], bool]) -> None:
        self._say, self._cut = say, cut
        self._loop = asyncio.get_running_loop()
        self._refusals: dict[int, tuple[Fields, bool]] = {}
        """Ends of calls whose callers have said nothing but their head, and whether they will."""
        self._early: dict[int, float] = {}
        """When to cut the requests of streams whose answers have ended."""
        self._timer: asyncio.TimerHandle | None = None

    def refuse(self, stream_id: int, fields: Fields, *, has_spoken: bool, is_last: bool) -> None:
        """Answer a call with its end alone. `is_last`: its request has ended."""
        self._refusals[stream_id] = fields, is_last
        if has_spoken:
            self.heard(stream_id)
        else:
            self._loop.call_later(SPEAK_S, self.heard, stream_id)

    def heard(self, stream_id: int) -> None:
        """Take note that a caller speaks."""
        found = self._refusals.pop(stream_id, None)
        if found is not None:
            fields, is_last = found
            self._say(stream_id, fields)
            if not is_last:
                self.note_early(stream_id)

    def note_early(self, stream_id: int) -> None:
        """Take note of an answer that ends before its request does."""
        self._early[stream_id] = self._loop.time() + CUT_S
        if self._timer is None:
            self._timer = self._loop.call_later(CUT_S, self._cut_some)

    def forget(self, stream_id: int) -> None:
        """Take note that a stream is closed."""
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
