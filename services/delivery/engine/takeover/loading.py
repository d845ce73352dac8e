# SPDX-License-Identifier: Apache-2.0
"""Reads the journal: from the last whole copy on, or all of it, up to the record with which this process began.

Only what the process wrote that began last counts: what a former one wrote after it is passed over.
"""

import logging

from libs.formats.errors import FormatError
from libs.formats.records.delivery_record import Began, CopyEdge, DeliveryRecord
from services.delivery.engine.ports import Index
from services.delivery.engine.state.groups import Groups

WAIT_S = 5.0

_log = logging.getLogger(__name__)


class Reading:
    """What was read of the journal so far."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.is_whole = False
        """Whether a copy was read from its beginning to its end."""
        self.owner = ""
        self.last = -1
        """Queue offset of the last record that says more than that a process begins."""
        self._copy: int | None = None

    def read(self, queue_offset: int, record: DeliveryRecord) -> None:
        """Take over a record."""
        if record.events and isinstance(record.events[0], Began):
            self.owner = record.events[0].owner
        else:
            self.last = queue_offset
        self.owner = self.owner or record.owner
        if record.owner != self.owner:
            return
        for event in record.events:
            self.groups.apply(event)
            if isinstance(event, CopyEdge):
                self.is_whole |= event.is_end and event.number == self._copy
                self._copy = None if event.is_end else event.number


async def load(index: Index, owner: str, *, start: int) -> tuple[Groups, int]:
    """Return what the journal says, and the queue offset of its last record before this process began, -1 if none.

    Records that only say that a process begins are none. Raises DependencyUnavailable. `start` is where the last copy
    begins; where there is none that is whole, everything that is left is read.
    """
    reading = await _read(index, owner, start)
    if start and not reading.is_whole:
        _log.warning("the journal has no whole copy at record %d: all of it is read", start)
        reading = await _read(index, owner, 0)
    return reading.groups, reading.last


async def _read(index: Index, owner: str, position: int) -> Reading:
    reading = Reading()
    while reading.owner != owner:
        records, position = await index.journal(position, wait_s=WAIT_S)
        for stored in records:
            try:
                record = DeliveryRecord.decode(stored.body)
            except FormatError as error:
                _log.error("record %d of the journal is stepped over: %s", stored.queue_offset, error)
            else:
                reading.read(stored.queue_offset, record)
    return reading
