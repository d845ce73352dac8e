# SPDX-License-Identifier: Apache-2.0
"""Seal: ends all writing at the first write, commit or sync that fails.

Invariants: afterwards no batch is acknowledged with a durability that it does not have. Callers that wait for a
durability get an error. Reads continue. Later failures change nothing. The kernel reports such an error once and drops
the pages, so a later success proves nothing. A bug in a background loop sets the seal, too: otherwise no caller would
learn that nothing becomes durable any more.
Callers: the loop that owns the log.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from libs.log.watermark import Watermark
from libs.segments.errors import SyncFailed
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.errors import StoreSealed

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Seal:
    """The seal of a log. It closes the gate and fails `_marks`, which then no longer advance.

    `_on_set` gets the error, to end the process.
    """

    _gate: WriteGate
    _marks: tuple[Watermark, ...]
    _directory: Path
    _on_set: Callable[[BaseException], None]

    @property
    def is_set(self) -> bool:
        """Whether a write, a commit or a sync failed."""
        return self._gate.holds(Reason.SEALED)

    def check(self) -> None:
        """Raise StoreSealed if the seal is set."""
        if self.is_set:
            raise StoreSealed

    def set(self, cause: Exception) -> None:
        """Set the seal, once: refuse appends, fail the marks and log the error."""
        if not self._gate.put(Reason.SEALED, holds=True):
            return
        error = cause if isinstance(cause, SyncFailed) else self._sync_failed(cause)
        _log.error("%s", error)
        for mark in self._marks:
            mark.fail(StoreSealed)
        self._on_set(error)

    def _sync_failed(self, cause: Exception) -> SyncFailed:
        """Return the error for a step that failed before any write or sync, such as mapping a file."""
        position = min(mark.value for mark in self._marks)
        error = SyncFailed(path=self._directory, position=position, reason=str(cause))
        error.__cause__ = cause
        return error
