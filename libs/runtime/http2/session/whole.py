# SPDX-License-Identifier: Apache-2.0
"""WholeCall: a call whose head and whole request arrived together. No I/O."""

from collections.abc import Callable
from typing import Final

from libs.runtime.http2.heads import Fields, Head

HeadOf = Callable[[Fields], Head | None]
"""Returns the head of a call, for fields without grpc-timeout. None for a call that is always reported as events."""

KNOWN_HEAD_COUNT_MAX: Final = 1_024
"""Heads that are kept parsed. Most callers send the same head with each call of a method."""

KNOWN_HEAD_SIZE_BYTES_MAX: Final = 1 << 10
"""Larger heads are parsed for each call."""


class WholeCall:
    """A call whose head and single, uncompressed message arrived in one piece of input. Its bytes are acknowledged."""

    __slots__ = ("head", "message", "stream_id", "timeout_s")

    def __init__(self, stream_id: int, head: Head, timeout_s: float | None, message: bytes) -> None:
        self.stream_id = stream_id
        self.head = head
        """The head, which other calls may share. Its `timeout_s` has no meaning."""
        self.timeout_s = timeout_s
        self.message = message

    def __repr__(self) -> str:
        return f"WholeCall({self.stream_id}, {self.head.method!r}, {self.timeout_s}, {len(self.message)} bytes)"
