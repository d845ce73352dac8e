# SPDX-License-Identifier: Apache-2.0
"""Done: the records of the timer topic that are done, by queue offset: delivered, cancelled, renewed or lost.

It is made of events alone. All records below `low` are done. Memory: a bit for each offset from `low` to the highest
offset that is done.
Invariant: a record that is done stays done, so events may be applied again, and in any order. Callers: a single thread.
"""

import zlib
from collections.abc import Iterator

from libs.formats.records.delivery_record import DelaysCopied, DelaysDone

PART_BITS = 1 << 20
"""Offsets in a part of a copy."""
SLACK_BYTES = 1 << 16
"""Bytes below `low` that are kept before their memory is freed."""


class Done:
    """The queue offsets of the timer topic whose records are done."""

    def __init__(self) -> None:
        self.low = 0
        """The first offset that is not done."""
        self.is_known = False
        """Whether the journal had such an event: false for a store whose delays Delivery has never delivered."""
        self._base = 0  # a multiple of eight
        self._bits = bytearray()

    def __contains__(self, offset: int) -> bool:
        """Return whether an offset is done."""
        at = offset - self._base
        return offset < self.low or (at >> 3 < len(self._bits) and self._bits[at >> 3] >> (at & 7) & 1 == 1)

    @property
    def end(self) -> int:
        """The offset after the last offset that is done."""
        return max(self.low, self._base + 8 * (len(self._bits) - 1) + self._bits[-1].bit_length() if self._bits else 0)

    def add(self, offset: int) -> None:
        """Record that an offset is done."""
        if offset < self.low:
            return
        at = offset - self._base
        if at >> 3 >= len(self._bits):
            self._bits.extend(bytes((at >> 3) + 1 - len(self._bits)))
        self._bits[at >> 3] |= 1 << (at & 7)
        self._rise()

    def skip_to(self, low: int) -> None:
        """Record that all offsets below `low` are done: these records are gone from the log."""
        if low > self.low:
            self.low = low
            self._rise()

    def apply(self, event: DelaysDone | DelaysCopied) -> None:
        """Apply an event."""
        self.is_known = True
        if isinstance(event, DelaysDone):
            for offset in event.offsets:
                self.add(offset)
            return
        self.skip_to(event.low)
        for index, byte in enumerate(zlib.decompress(event.bits)):
            if byte:
                for bit in range(8):
                    if byte >> bit & 1:
                        self.add(event.start + 8 * index + bit)

    def copied(self) -> Iterator[DelaysCopied]:
        """Yield the events that a copy consists of, in parts."""
        for start in range(0, max(1, len(self._bits)), PART_BITS // 8):
            part = self._bits[start : start + PART_BITS // 8]
            yield DelaysCopied(self.low, self._base + 8 * start, zlib.compress(part, 1))

    def not_done(self, end: int) -> Iterator[int]:
        """Yield the offsets below `end` that are not done now."""
        return (offset for offset in range(self.low, end) if offset not in self)

    def _rise(self) -> None:
        at = max(self.low - self._base, 0)
        while at >> 3 < len(self._bits):
            byte = self._bits[at >> 3] >> (at & 7)
            if byte == 0xFF >> (at & 7):
                at = (at | 7) + 1
                continue
            while byte & 1:
                at, byte = at + 1, byte >> 1
            break
        self.low = max(self.low, self._base + at)
        whole = (self.low - self._base) >> 3
        if whole > SLACK_BYTES or whole >= len(self._bits):
            del self._bits[:whole]
            self._base += 8 * whole
