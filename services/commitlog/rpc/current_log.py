# SPDX-License-Identifier: Apache-2.0
"""CurrentLog: the open log of a process, from which each call takes its parts.

A process opens its log anew when its role changes. A call takes the log once, at its start, and stays with it, because
an append must never be acknowledged by the marks of another log.
"""

from msgspec import Struct

from libs.runtime.rpc.errors import NotReady
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog


class CurrentLog(Struct, frozen=True):
    """Returns the open log of a process when it is called."""

    _commit_log: CommitLog

    def __call__(self) -> OpenLog:
        """Return the log. Raises NotReady while there is none."""
        if self._commit_log.log is None:
            raise NotReady("the server is recovering its store")
        return self._commit_log.log
