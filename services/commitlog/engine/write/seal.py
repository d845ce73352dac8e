# SPDX-License-Identifier: Apache-2.0
"""Seal: the end of all writing at the first write, commit or sync that fails.

Invariants: after it nothing is acknowledged as more durable than it is, whoever waits for that is told, and reads go
on; only the first failure counts. The kernel reports such an error once and drops the pages, so what succeeds later
means nothing. A bug in a background loop seals, too: nobody would be told that nothing becomes durable any more.
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
    """Closes the gate and fails `_marks`, which stand still then. `_on_set` hears of it, to end the process."""

    _gate: WriteGate
    _marks: tuple[Watermark, ...]
    _directory: Path
    _on_set: Callable[[BaseException], None]

    @property
    def is_set(self) -> bool:
        """Whether something failed."""
        return self._gate.holds(Reason.SEALED)

    def check(self) -> None:
        """Raise StoreSealed if something failed."""
        if self.is_set:
            raise StoreSealed

    def set(self, cause: Exception) -> None:
        """Promise nothing from now on."""
        if not self._gate.put(Reason.SEALED, holds=True):
            return
        error = cause if isinstance(cause, SyncFailed) else self._sync_failed(cause)
        _log.error("%s", error)
        for mark in self._marks:
            mark.fail(StoreSealed)
        self._on_set(error)

    def _sync_failed(self, cause: Exception) -> SyncFailed:
        """Return the error for what could not even begin, such as mapping a file."""
        position = min(mark.value for mark in self._marks)
        error = SyncFailed(path=self._directory, position=position, reason=str(cause))
        error.__cause__ = cause
        return error
