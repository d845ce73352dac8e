# SPDX-License-Identifier: Apache-2.0
"""Whether a service may begin a store in its data directory.

A directory that is missing or empty is a new store, or one whose disk is not mounted: nothing in it can tell. So a
start that is not to make a store says so in its settings (`create_store = false`), and is refused then.
Callers: each service with a data directory, before anything else touches it. RocketMQ makes a store in silence.
"""

import errno
from pathlib import Path

from libs.machine.errors import FsError
from libs.machine.fs import Fs

OF_FILE_SYSTEMS = frozenset({"lost+found"})
"""Entries that a new file system has."""


class NoStore(FsError):
    """There is no store, and the settings allow none to be made."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            errno.ENOENT,
            path,
            "there is no store here, and create_store = false allows none to be made: is the disk mounted? For the "
            "first start of a new store set create_store = true",
        )


def check(fs: Fs, data_dir: Path, *, may_create: bool) -> None:
    """Raise NoStore when the directory is missing or empty and no store may be made there. Blocks."""
    if may_create:
        return
    if not fs.exists(data_dir) or OF_FILE_SYSTEMS.issuperset(fs.list(data_dir)):
        raise NoStore(data_dir)
