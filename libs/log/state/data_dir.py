# SPDX-License-Identifier: Apache-2.0
"""Whether a service may begin a store in its data directory.

A directory that is missing or empty is either a new store or a store whose disk is not mounted: it has no content that
tells the difference. So the settings can forbid a start to create a store (`create_store = false`). Such a start is
refused. A directory in which a restore has not ended is no store yet, and is always refused.
Callers: each service with a data directory, before any other access to it. RocketMQ creates a store without a message.
"""

import errno
from pathlib import Path

from libs.formats import store_layout
from libs.machine.errors import FsError
from libs.machine.fs import Fs

OF_FILE_SYSTEMS = frozenset({"lost+found"})
"""Entries of a new file system."""


class NoStore(FsError):
    """There is no store, and the settings forbid to create a store."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            errno.ENOENT,
            path,
            "there is no store here, and create_store = false allows none to be made: is the disk mounted? For the "
            "first start of a new store set create_store = true",
        )


class RestoreUnfinished(FsError):
    """A restore into the directory was killed, or still runs."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            errno.EBUSY, path, "a restore into this directory has not ended: wait for it, or run the same command again"
        )


def check(fs: Fs, data_dir: Path, *, may_create: bool) -> None:
    """Raise RestoreUnfinished, or NoStore when no store is there and none may be created. Blocks."""
    if is_restoring(fs, data_dir):
        raise RestoreUnfinished(data_dir)
    if may_create:
        return
    if not fs.exists(data_dir) or OF_FILE_SYSTEMS.issuperset(fs.list(data_dir)):
        raise NoStore(data_dir)


def is_restoring(fs: Fs, data_dir: Path) -> bool:
    """Return whether a restore has begun in a directory and has not ended: its last step moves the segments. Blocks."""
    log = data_dir / store_layout.COMMIT_LOG
    return fs.exists(data_dir / store_layout.RESTORING) and not (fs.exists(log) and fs.list(log))
