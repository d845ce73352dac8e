# SPDX-License-Identifier: Apache-2.0
"""A buffer that counts the bytes that were read. For tests of code that takes slices."""


class WatchedBuffer:
    """A buffer in place of a memoryview."""

    def __init__(self, buffer: memoryview) -> None:
        self.looked_at_bytes = 0
        self._buffer = buffer

    def __getitem__(self, part: slice) -> memoryview:
        """Return a slice, and count its bytes."""
        found = self._buffer[part]
        self.looked_at_bytes += len(found)
        return found
