# SPDX-License-Identifier: Apache-2.0
"""OtherHistories: detects an Indexer that knows another, longer log than this log.

A data directory whose disk is not mounted looks like a new store. The log can't detect that, but its Indexer has the
name of the history that it indexed. A log with another history that ends before the Indexer's offset refuses appends,
so nothing is acknowledged onto the wrong disk.
Invariants: an Indexer of another store that connects by mistake does not stop appends while an Indexer of this log is
connected. The first report of an Indexer of this log lets appends in again.
Callers: the loop that owns the log. RocketMQ has no such check: queues and log are in one process.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.marks import Marks

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OtherHistories:
    """The check of the histories that a log's followers report."""

    _epochs: EpochHistory
    _marks: Marks
    _gate: WriteGate
    _own_count: int = 0

    @contextlib.contextmanager
    def followed(self, history_id: str, physical_offset: int) -> Iterator[None]:
        """Enclose the stream of a follower that holds a history up to an offset. The name may be unknown."""
        mine = self._epochs.history_id
        if history_id and mine and history_id != mine:
            self._note_other(physical_offset)
            yield
            return
        self._own_count += 1
        try:
            yield
        finally:
            self._own_count -= 1

    def note_own(self, history_id: str) -> None:
        """Record a report by an Indexer of this history. If it is this log's history, appends are accepted again."""
        if history_id and history_id == self._epochs.history_id and self._gate.put(Reason.REPLACED, holds=False):
            _log.warning("an Indexer follows this log: appends are accepted")

    def _note_other(self, physical_offset: int) -> None:
        end = self._marks.committed.value
        if physical_offset <= end or self._own_count:
            return
        if self._gate.put(Reason.REPLACED, holds=True):
            _log.error(
                "this log ends at %d, but an Indexer knows another one up to %d: is the disk of data_dir mounted? "
                "Appends are refused until an Indexer follows this log (`reput index rebuild`)",
                end,
                physical_offset,
            )
