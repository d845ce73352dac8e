# SPDX-License-Identifier: Apache-2.0
"""CallBounds: how many calls may run at once, how many bytes of answers may wait for their readers, and for how long.

gRPC holds an answer until its reader has received it, and can't be told to let go: so what may be handed to gRPC is
bounded. Callers: the event loop.
"""

from libs.runtime.rpc.errors import ServerFull

SMALL_ANSWER_BYTES = 32 << 10
"""Answers up to this size are not counted: what all calls together may hold of them is bounded by their number."""


REQUEST_SLACK_BYTES = 1 << 20
"""A front refuses, before any method sees it, only what is this much above the service's own limit."""


class CallLimit:
    """Calls that run, at most `limit` at once. A `with` block counts as one call and allocates nothing."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit

    def __enter__(self) -> None:
        """Count a call. Raises ServerFull."""
        if self.count >= self._limit:
            raise ServerFull("too many calls are under way", limit=self._limit)
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class ByteBudget:
    """Bytes that are held for others, at most `limit`; `text` says what for, to whoever comes too late."""

    def __init__(self, text: str, limit: int) -> None:
        self.charged_bytes = 0
        self._text = text
        self._limit = limit

    @property
    def is_half_used(self) -> bool:
        """Whether half of it is used."""
        return 2 * self.charged_bytes > self._limit

    def charge(self, size_bytes: int) -> None:
        """Count bytes. Raises ServerFull unless nothing else is counted."""
        if self.charged_bytes and self.charged_bytes + size_bytes > self._limit:
            raise ServerFull(self._text, limit=self._limit)
        self.charged_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Stop counting bytes."""
        self.charged_bytes -= size_bytes
        assert self.charged_bytes >= 0


class CallBounds:
    """The bounds of the calls of one server. `unread_timeout_s` is how long one answer of a stream may wait."""

    def __init__(self, *, call_count_max: int, answer_bytes_max: int, unread_timeout_s: float) -> None:
        self.calls = CallLimit(call_count_max)
        self.answers = ByteBudget("readers leave too many bytes of answers untaken", answer_bytes_max)
        """Of answers above SMALL_ANSWER_BYTES that their readers have not received."""
        self.unread_timeout_s = unread_timeout_s
