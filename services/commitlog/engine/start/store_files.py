# SPDX-License-Identifier: Apache-2.0
"""StoreFiles: the files `lock` and `abort`, which show the store's current process and how its last run ended.

Invariants: `abort` exists from before the first change of a start until after the last change of a clean stop. Its
presence is the only sign of an unclean stop, and it names the program that stopped. After an unclean stop of RocketMQ
with queues that only RocketMQ recovers (SetApart), the file stays over Reput's clean stops, with a mark for this case.
It also stays over a clean stop while the queues lack records: RocketMQ's recovery after a clean stop takes the queues'
last record for the start of the missing records, and steps over the first record behind it.
A follower never stops cleanly, and has its own mark in the file: if this log leads next, it must begin an epoch.
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
    """The claim of a process on a data directory."""

    def __init__(self, fs: Fs, data_dir: Path) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._abort = data_dir / store_layout.ABORT
        self._locks = contextlib.ExitStack()
        self.is_of_rocketmq = False
        """Whether RocketMQ stopped uncleanly, set by `claim`."""
        self.is_owed = False
        """Whether RocketMQ still has to recover from its unclean stop, set by `claim`. The opening may reset it."""
        self.has_followed = False
        """Whether the log was a copy of another log, set by `claim`."""

    def claim(self) -> bool:
        """Lock the directory. Creates it if missing. Returns whether the last stop was clean. Raises StoreLocked."""
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
        """Record, durably, that a stop from now on is unclean, and whether the log is a copy of another log."""
        self._write(Abort(os.getpid(), follows, self.is_owed))

    def mark_clean(self, *, is_behind: bool) -> None:
        """Record, durably, that the log is complete on disk. Must be the last step.

        `is_behind`: whether the queues on disk lack records of the log.
        """
        failpoint("mark_clean.before_remove")
        if self.is_owed or is_behind:
            # Reput needs neither: a stop before the Indexer has caught up is an ordinary stop.
            level, reason = (
                (logging.WARNING, "recover its own queues")
                if self.is_owed
                else (logging.INFO, "build the queues' missing units")
            )
            _log.log(level, "`abort` stays, for RocketMQ to %s: start RocketMQ with messageIndexSafe=true", reason)
            self._write(Abort(is_owed=self.is_owed, is_behind=is_behind))
            return
        self._fs.remove(self._abort)
        self._fs.sync_directory(self._data_dir)
        failpoint("mark_clean.after_remove")

    def release(self) -> None:
        """Release the locks. May be repeated."""
        self._locks.close()

    def _write(self, abort: Abort) -> None:
        self._fs.write_atomic(self._abort, abort_file.encode(abort))
