# SPDX-License-Identifier: Apache-2.0
"""Errors of the files of a store. Each error carries its coordinates as attributes."""

from pathlib import Path
from typing import ClassVar


class StoreError(Exception):
    """Base of all errors of this room."""


class StoreFull(StoreError):
    """The disk has no room for a segment. Nothing was changed; the same call may succeed later."""

    def __init__(self, *, path: Path, needed_bytes: int) -> None:
        super().__init__(f"{path}: the disk has no room for the {needed_bytes} bytes of this segment")
        self.path, self.needed_bytes = path, needed_bytes


class SegmentMissing(StoreError):
    """The offsets of two neighbouring files do not differ by the segment size: a file is missing or misnamed."""

    def __init__(self, *, path: Path, previous: Path, missing: str) -> None:
        super().__init__(
            f"{path}: between this file and {previous} at least {missing} is missing; nothing was changed: restore it "
            "from a copy"
        )
        self.path, self.previous = path, previous


class SegmentTwice(StoreError):
    """Two directories of a log have a segment of the same name. The right file is unknown."""

    def __init__(self, *, path: Path, other: Path) -> None:
        super().__init__(
            f"{path}: there is {other}, too; nothing was changed: compare the two, and move the wrong one away"
        )
        self.path, self.other = path, other


class SegmentSizeWrong(StoreError):
    """A file does not have the configured segment size, so the offsets of its bytes do not match its name."""

    def __init__(self, *, path: Path, size_bytes: int, expected_bytes: int) -> None:
        super().__init__(
            f"{path}: the file has {size_bytes} bytes, but the configured segment size is {expected_bytes} bytes; "
            "nothing was changed: correct the setting if all files have the other size, or restore this one from a copy"
        )
        self.path, self.size_bytes, self.expected_bytes = path, size_bytes, expected_bytes


class FaultAt(StoreError):
    """Base class: a fault at a byte of a file. TEXT has places for `path`, `position` and `reason`."""

    TEXT: ClassVar[str]

    def __init__(self, *, path: Path, position: int, reason: str) -> None:
        super().__init__(self.TEXT.format(path=path, position=position, reason=reason))
        self.path, self.position, self.reason = path, position, reason


class SegmentUnreadable(FaultAt):
    """The file is gone or has another size, or the disk can't read it. This says nothing about the file's content."""

    TEXT = (
        "{path}: can't be read at byte {position}: {reason}; nothing was changed: look at the disk and at the file's "
        "permissions, or restore the file from a copy"
    )

    @property
    def segment(self) -> str:
        """Name of the file, for callers of a service."""
        return self.path.name


class IndexDamaged(SegmentUnreadable):
    """An index file has bytes that were never written, so answers would lack messages. The log is not affected."""

    TEXT = (
        "{path}: damaged at byte {position}: {reason}; nothing was changed: `reput index rebuild` makes the indexes "
        "anew from the log"
    )


class SyncFailed(FaultAt):
    """The disk refused written bytes. The content of the disk is then unknown, so the chain is sealed.

    The kernel reports such an error once and drops the pages, so a repeated sync would succeed and mean nothing.
    """

    TEXT = "{path}: sync up to byte {position} failed: {reason}; the store is sealed"


class CommitFailed(SyncFailed):
    """The file refused bytes of a pool's buffer. The chain is sealed as by a failed sync."""

    TEXT = "{path}: commit up to byte {position} failed: {reason}; the store is sealed"


class WriteFailed(SyncFailed):
    """The file refused a batch although its blocks are reserved. The chain is sealed as by a failed sync."""

    TEXT = "{path}: write at byte {position} failed: {reason}; the store is sealed"


class OffsetTrimmed(StoreError):
    """The offset lies below the oldest kept byte."""

    def __init__(self, *, value: int, min_offset: int) -> None:
        super().__init__(f"offset {value} is below the oldest that is kept, {min_offset}")
        self.value, self.min = value, min_offset


class OffsetBeyondEnd(StoreError):
    """The offset lies at or beyond the end of the written bytes."""

    def __init__(self, *, value: int, max_offset: int) -> None:
        super().__init__(f"offset {value} is beyond the end, {max_offset}")
        self.value, self.max = value, max_offset
