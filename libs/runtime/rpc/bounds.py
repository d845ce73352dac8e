# SPDX-License-Identifier: Apache-2.0
"""CallBounds: the maximum of running calls, and of the bytes and the time of answers that wait for their readers.

gRPC holds an answer until its reader has received it, and can't be made to drop it. So the bytes that gRPC may hold are
bounded. Callers: the event loop.
"""

from libs.runtime.rpc.errors import ServerFull

SMALL_ANSWER_BYTES = 32 << 10
"""Answers up to this size are not counted: the maximum number of calls bounds their total size."""


REQUEST_SLACK_BYTES = 1 << 20
"""A front refuses a request, before any method sees it, only if it exceeds the service's own limit by this much."""


class CallLimit:
    """The running calls, at most `limit` at once. A `with` block counts as a call and allocates nothing."""

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

    def has_room(self, count: int) -> bool:
        """Return whether `count` more calls may run."""
        return self.count + count <= self._limit


class ByteBudget:
    """Bytes that are held for callers, at most `limit`. `text` names their purpose in the error of a refused caller."""

    def __init__(self, text: str, limit: int) -> None:
        self.charged_bytes = 0
        self._text = text
        self._limit = limit

    @property
    def is_half_used(self) -> bool:
        """Whether more than half of the budget is used."""
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
    """The bounds of the calls of a server. `unread_timeout_s` is the maximum wait of an answer of a stream."""

    def __init__(self, *, call_count_max: int, answer_bytes_max: int, unread_timeout_s: float) -> None:
        self.calls = CallLimit(call_count_max)
        self.answers = ByteBudget("readers leave too many bytes of answers untaken", answer_bytes_max)
        """Bytes of answers above SMALL_ANSWER_BYTES that their readers have not received."""
        self.unread_timeout_s = unread_timeout_s
