# SPDX-License-Identifier: Apache-2.0
"""StoreFiles: the small files that say who uses the store and how the last use ended: `lock` and `abort`.

Invariants: `abort` exists from before the first change of a start until after the last change of a clean stop; its
presence is the only sign of an unclean stop, and it tells whose. Where RocketMQ stopped so, and has queues that only it
recovers (SetApart), the file stays over our own clean stops, with a word in it that says so. A log that follows another
one never stops cleanly, and has a word of its own there: whoever leads it next must begin an epoch.
Layout: libs/formats/state/abort_file.py; RocketMQ's counterpart is DefaultMessageStore.createTempFile.
"""

import contextlib
import logging
import os
from pathlib import Path

from libs.formats import store_layout
from libs.formats.state import abort_file
from libs.formats.state.abort_file import Abort
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


class StoreFiles:
    """Claims one data directory for one process."""

    def __init__(self, fs: Fs, data_dir: Path) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._abort = data_dir / store_layout.ABORT
        self._locks = contextlib.ExitStack()
        self.is_of_rocketmq = False
        """Whether it was RocketMQ that did not stop cleanly; `claim` finds out."""
        self.is_owed = False
        """Whether RocketMQ has yet to recover from that; `claim` finds out, and who knows better may deny it."""
        self.has_followed = False
        """Whether the log was another one's copy; `claim` finds out."""

    def claim(self) -> bool:
        """Lock the directory, made when missing. Returns whether the stop before was clean. Raises StoreLocked."""
        self._fs.make_directory(self._data_dir)
        self._locks.callback(self._fs.lock(self._data_dir / store_layout.LOCK).release)
        if not self._fs.exists(self._abort):
            return True
        abort = abort_file.decode(self._fs.read(self._abort))
        self.is_of_rocketmq = abort.is_of_rocketmq
        self.is_owed = abort.is_of_rocketmq or abort.is_owed
        self.has_followed = abort.follows
        return abort.is_clean

    def claim_directory(self, directory: Path) -> None:
        """Lock a directory of the log elsewhere, which the data directory's lock does not cover. Raises StoreLocked."""
        self._locks.callback(self._fs.lock_directory(directory).release)

    def mark_in_use(self, *, follows: bool = False) -> None:
        """Note, durably, that a stop from here on is unclean, and whether the log is another one's copy."""
        self._write(Abort(os.getpid(), follows, self.is_owed))

    def mark_clean(self) -> None:
        """Note, durably, that the store is complete on disk. Comes last."""
        failpoint("mark_clean.before_remove")
        if self.is_owed:
            _log.warning("`abort` stays, for RocketMQ to recover its own queues: start it with messageIndexSafe=true")
            self._write(Abort(is_owed=True))
            return
        self._fs.remove(self._abort)
        self._fs.sync_directory(self._data_dir)
        failpoint("mark_clean.after_remove")

    def release(self) -> None:
        """Give up the locks. May be repeated."""
        self._locks.close()

    def _write(self, abort: Abort) -> None:
        self._fs.write_atomic(self._abort, abort_file.encode(abort))
