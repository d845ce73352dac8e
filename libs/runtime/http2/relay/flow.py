# SPDX-License-Identifier: Apache-2.0
"""Flow: the bytes of a call in one direction, from their arrival until they have left.

Its sender gets credit for bytes that have left, so a slow reader costs this server no more than the sender's window.
Invariants: all bytes that are held are counted in the budget; after the end, nothing of the sender's window is missing.
"""

from typing import Final, Protocol

ACCOUNT_BYTES: Final = 64 << 10
"""Bytes that have left are acknowledged when there are so many, or at the end."""


class Budget(Protocol):
    """Bytes that are held for callers, over all calls."""

    def charge(self, size_bytes: int) -> None:
        """Count bytes. Raises CallRefused."""
        ...

    def give_back(self, size_bytes: int) -> None:
        """Stop counting bytes."""
        ...


class Source(Protocol):
    """The connection from which bytes arrive."""

    def acknowledge_bytes(self, stream_id: int, size_bytes: int) -> None:
        """Allow the sender to send `size_bytes` more bytes."""
        ...


class Flow:
    """The bytes of a call in one direction. Callers: a single event loop."""

    __slots__ = ("_budget", "_given_bytes", "_left_bytes", "_source", "_stream_id", "held_bytes", "total_bytes")

    def __init__(self, budget: Budget, source: Source, stream_id: int) -> None:
        self._budget, self._source, self._stream_id = budget, source, stream_id
        self.held_bytes = self._left_bytes = self.total_bytes = 0
        self._given_bytes = 0
        """Bytes whose sender has its credit already."""

    def hold(self, size_bytes: int) -> None:
        """Count bytes that have arrived. Raises CallRefused, and the bytes are acknowledged."""
        self.total_bytes += size_bytes
        try:
            self._budget.charge(size_bytes)
        except BaseException:
            self._source.acknowledge_bytes(self._stream_id, size_bytes)
            raise
        self.held_bytes += size_bytes

    def hold_acknowledged(self, size_bytes: int) -> None:
        """Count bytes of a whole request, whose sender has its credit again. Raises CallRefused."""
        self._budget.charge(size_bytes)
        self.total_bytes += size_bytes
        self.held_bytes += size_bytes
        self._given_bytes += size_bytes

    def left(self, held_bytes: int) -> None:
        """Record that only `held_bytes` are still here."""
        gone_bytes = self.held_bytes - held_bytes
        if gone_bytes <= 0:
            return
        self.held_bytes = held_bytes
        self._budget.give_back(gone_bytes)
        self._left_bytes += gone_bytes
        if self._left_bytes >= ACCOUNT_BYTES:
            self._acknowledge(self._left_bytes)
            self._left_bytes = 0

    def end(self) -> None:
        """Acknowledge all bytes, because none of them are needed any more."""
        self._budget.give_back(self.held_bytes)
        self._acknowledge(self.held_bytes + self._left_bytes)
        self.held_bytes = self._left_bytes = 0

    def _acknowledge(self, size_bytes: int) -> None:
        given_bytes = min(size_bytes, self._given_bytes)
        self._given_bytes -= given_bytes
        if size_bytes > given_bytes:
            self._source.acknowledge_bytes(self._stream_id, size_bytes - given_bytes)
