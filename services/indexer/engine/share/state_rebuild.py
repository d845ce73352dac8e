# SPDX-License-Identifier: Apache-2.0
"""Rebuilds the shared state when records of it are missing: from a whole copy and the changes around it. Pure."""

from msgspec import Struct, field

from libs.formats.records.state_record import StateRecord
from services.indexer.engine.share.local_changes import Place, changes


class Copies(Struct):
    """The search for whole copies. It must read each record in the order of the log."""

    physical_offset: int = -1
    """Begin of the newest whole copy; -1: no whole copy was read."""
    _name: tuple[str, int] = ("", 0)
    _part_count: int = 0
    _begin_physical_offset: int = -1

    def read(self, record: StateRecord, physical_offset: int) -> bool:
        """Read a record. Returns whether it is the last part of a copy whose parts all came in order."""
        if record.copy is None:
            return False
        if record.copy.index == 0:
            self._name, self._part_count = (record.origin, record.number), 0
            self._begin_physical_offset = physical_offset
        if (record.origin, record.number) != self._name or record.copy.index != self._part_count:
            return False
        self._part_count += 1
        is_whole = self._part_count == record.copy.count
        if is_whole:
            self.physical_offset = self._begin_physical_offset
        return is_whole


class StateRebuild(Struct):
    """The gathered state. Changes have precedence. A copy sets the values for which no change was read."""

    offsets: dict[Place, int | None] = field(default_factory=dict)
    """None: it was deleted."""

    def read(self, record: StateRecord) -> None:
        """Add a record."""
        if record.copy is None:
            self.offsets.update(changes(record))
            return
        for place, queue_offset in changes(record):
            self.offsets.setdefault(place, queue_offset)
