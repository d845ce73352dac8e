# SPDX-License-Identifier: Apache-2.0
"""NotedDamage: records for answers, and which of them could not be read because their bytes are damaged.

A source answers the records before a damaged one, so an answer can end there; the one that begins with it fails, with
its place. Readers see that, and people in the status. Callers: the event loop's thread; `count` from any.
Memory: PLACE_COUNT_MAX places.
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
"""What a source raises for a record that it can't give, while it has others."""

_log = logging.getLogger(__name__)


class DamagedRecord(NamedTuple):
    """Where something was wanted and could not be read."""

    segment: str
    position: int
    reason: str


class NotedDamage:
    """RecordSource in front of another one."""

    def __init__(self, records: RecordSource) -> None:
        self._records = records
        self._places: dict[tuple[str, int], DamagedRecord] = {}

    @property
    def count(self) -> int:
        """Places that were met since the start, at most PLACE_COUNT_MAX."""
        return len(self._places)

    def places(self) -> list[DamagedRecord]:
        """Return the places that were met first."""
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
