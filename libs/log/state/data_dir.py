# SPDX-License-Identifier: Apache-2.0
"""Whether a service may begin a store in its data directory.

A directory that is missing or empty is either a new store or a store whose disk is not mounted: it has no content that
tells the difference. So the settings can forbid a start to create a store (`create_store = false`). Such a start is
refused.
Callers: each service with a data directory, before any other access to it. RocketMQ creates a store without a message.
"""

import errno
from pathlib import Path

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


def check(fs: Fs, data_dir: Path, *, may_create: bool) -> None:
    """Raise NoStore when the directory is missing or empty and no store may be created there. Blocks."""
    if may_create:
        return
    if not fs.exists(data_dir) or OF_FILE_SYSTEMS.issuperset(fs.list(data_dir)):
        raise NoStore(data_dir)
