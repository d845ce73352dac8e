# SPDX-License-Identifier: Apache-2.0
"""Replays the journal: from the last whole copy on, or all of it, up to the first record of this ownership.

Only records of the owner that began last are valid: later records of a former owner are ignored.
A record that can't be decoded, because a newer version wrote it, ends the replay: its acknowledgements are unknown.
"""

import logging

from libs.formats.errors import FormatError, NewerVersion
from libs.formats.records.delivery_record import Began, CopyEdge, DeliveryRecord
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.waits import INDEXED_WAIT_S
from services.delivery.engine.state.groups import Groups
from services.delivery.errors import JournalLost, JournalUnreadable

LOOK_COUNT_MAX = 6
"""Looks at the index that may find no record. Each waits for `INDEXED_WAIT_S`."""

_log = logging.getLogger(__name__)


class JournalReplay:
    """The state that the records read so far describe."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.is_whole = False
        """Whether a copy was read from its beginning to its end."""
        self.owner = ""
        self.last = -1
        """Queue offset of the last record that is no Began record."""
        self.format = 1
        """The highest format of the records."""
        self._copy: int | None = None

    def read(self, queue_offset: int, record: DeliveryRecord) -> None:
        """Apply a record."""
        if record.events and isinstance(record.events[0], Began):
            self.owner = record.events[0].owner
        else:
            self.last = queue_offset
        self.owner = self.owner or record.owner
        self.format = max(self.format, record.format)
        if record.owner != self.owner:
            return
        for event in record.events:
            self.groups.apply(event)
            if isinstance(event, CopyEdge):
                self.is_whole |= event.is_end and event.number == self._copy
                self._copy = None if event.is_end else event.number


async def replay_journal(index: Index, owner: str, *, start: int, began: int, skip_below: int = 0) -> JournalReplay:
    """Return the state that the journal describes up to the record at queue offset `began`, the first of this process.

    `start` is where the last copy begins; if no copy there is whole, all records that are left are read. Records below
    the queue offset `skip_below` that can't be decoded are skipped. Raises DependencyUnavailable, also while the index
    does not reach `began`, JournalLost if the log has another record at `began`, because it was cut off, and
    JournalUnreadable for a record that can't be decoded.
    """
    reading = await _read(index, owner, start, began, skip_below)
    if start and not reading.is_whole:
        _log.warning("the journal has no whole copy at record %d: all of it is read", start)
        reading = await _read(index, owner, 0, began, skip_below)
    return reading


async def _read(index: Index, owner: str, position: int, began: int, skip_below: int) -> JournalReplay:
    reading, look_count = JournalReplay(), 0
    while position <= began:
        records, next_position = await index.journal(position, wait_s=INDEXED_WAIT_S)
        look_count = 0 if next_position > position else look_count + 1
        if look_count >= LOOK_COUNT_MAX:
            raise DependencyUnavailable("indexer", f"it does not have record {began} of the journal yet")
        position = next_position
        for stored in records:
            if stored.queue_offset > began:
                break
            try:
                record = DeliveryRecord.decode(stored.body)
            except (FormatError, NewerVersion) as error:
                if stored.queue_offset >= skip_below:
                    raise JournalUnreadable(stored.queue_offset, str(error)) from error
                _log.error("the journal's record at queue offset %d is skipped: %s", stored.queue_offset, error)
            else:
                reading.read(stored.queue_offset, record)
    if reading.owner != owner:
        raise JournalLost(f"record {began} of the journal is another one: the log was cut off")
    return reading
