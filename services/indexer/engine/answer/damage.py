# SPDX-License-Identifier: Apache-2.0
"""NotedDamage: reads records for answers, and notes the records that could not be read because of damaged bytes.

A source returns the records before a damaged record, so an answer can end there. An answer that begins with the damaged
record fails, and the error names the place. Readers see the error, and operators see the places in the status.
Callers: the event loop's thread; `count` from any thread. Memory: PLACE_COUNT_MAX places.
"""

import logging
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.requests.errors import RecordDamaged
from services.indexer.engine.log.source import RecordBlock, RecordSource
from services.indexer.errors import NotARecord

PLACE_COUNT_MAX = 16

UNREADABLE = (RecordDamaged, NotARecord)
"""The errors of a source for a record that it can't return, while it can return other records."""

_log = logging.getLogger(__name__)


class DamagedRecord(NamedTuple):
    """The place of a record that was requested and could not be read."""

    segment: str
    position: int
    reason: str


class NotedDamage:
    """A RecordSource in front of another source."""

    def __init__(self, records: RecordSource) -> None:
        self._records = records
        self._places: dict[tuple[str, int], DamagedRecord] = {}

    @property
    def count(self) -> int:
        """Damaged places found since the start, at most PLACE_COUNT_MAX."""
        return len(self._places)

    def places(self) -> list[DamagedRecord]:
        """Return the places that were found first."""
        return list(self._places.values())

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource."""
        return await self._records.has_topic(topic)

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource."""
        try:
            return await self._records.read(physical_offsets, record_sizes)
        except RecordDamaged as error:
            self._note(DamagedRecord(error.segment, error.position, error.reason))
            raise

    def _note(self, found: DamagedRecord) -> None:
        place = found.segment, found.position
        if place not in self._places and len(self._places) < PLACE_COUNT_MAX:
            self._places[place] = found
            _log.error("segment %s is damaged at byte %d, which a reader asks for: %s", *found)
