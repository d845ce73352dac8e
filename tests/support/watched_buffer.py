# SPDX-License-Identifier: Apache-2.0
"""A buffer that counts how many of its bytes were looked at. For tests of code that takes slices."""


class WatchedBuffer:
    """Stands in for a memoryview."""

    def __init__(self, buffer: memoryview) -> None:
        self.looked_at_bytes = 0
        self._buffer = buffer

    def __getitem__(self, part: slice) -> memoryview:
        """A slice, counted."""
        found = self._buffer[part]
        self.looked_at_bytes += len(found)
        return found
