# SPDX-License-Identifier: Apache-2.0
"""The refusals of a file system. All are OSErrors, so plain `except OSError` still catches them.

The text of each is a line that names the path and the remedy; `errno` and `filename` are set.
"""

import errno
from pathlib import Path


class FsError(OSError):
    """Base class: an OSError whose text starts with the path."""

    def __init__(self, code: int, path: Path, message: str) -> None:
        super().__init__(code, message, str(path))
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class DiskFull(FsError):
    """The disk has no room for the file at its full size. No part of the file was left behind."""

    def __init__(self, path: Path, *, needed_bytes: int) -> None:
        super().__init__(errno.ENOSPC, path, f"the disk has no room for {needed_bytes} bytes")
        self.needed_bytes = needed_bytes


class StoreLocked(FsError):
    """Another process holds the lock file, so that process owns the directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EAGAIN, path, "another process uses this directory")


class FileSystemUnsuited(FsError):
    """Preallocation does not protect mapped writes on this file system (btrfs with copy-on-write)."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            errno.ENOTSUP,
            path,
            "this is btrfs with copy-on-write, where a mapped write can fail on a full disk although its space was "
            "reserved; run `chattr +C` on the empty directory, or use ext4 or xfs",
        )
