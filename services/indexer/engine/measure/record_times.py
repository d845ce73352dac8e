# SPDX-License-Identifier: Apache-2.0
"""RecordTimes: the store times of a few records, such as the first record of each topic, which change seldom.

A time that was read is kept while the record is asked for. A round reads a bounded number of new records, and the next
round begins with the records that were left out.
Callers: the event loop's thread. Memory: a number for each record that was asked for last.
"""

from collections.abc import Iterable

import numpy as np

from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.answer.damage import UNREADABLE
from services.indexer.engine.log.record_reader import store_times_ms
from services.indexer.engine.log.source import RecordSource

COUNT_MAX, SIZE_BYTES_MAX = 512, 16 << 20
"""Records, and bytes of records, that a round reads."""
PART_COUNT = 64
"""Records that are read at once. A damaged record hides the times of its part."""


class RecordTimes:
    """The known store times of records, by physical offset, in milliseconds since the epoch."""

    def __init__(self, records: RecordSource) -> None:
        self._records = records
        self._known: dict[int, int] = {}
        self._last = -1
        """The record that the last round read last."""

    def find(self, physical_offset: int) -> int:
        """Return the time of a record, 0 if it is not known."""
        return self._known.get(physical_offset, 0)

    async def look(self, places: Iterable[tuple[int, int]]) -> None:
        """Read the times of these records, named by physical offset and size, and forget all other times."""
        wanted = dict(places)
        self._known = {offset: time_ms for offset, time_ms in self._known.items() if offset in wanted}
        missing = sorted(wanted.keys() - self._known.keys())
        behind = [offset for offset in missing if offset > self._last]
        chosen = self._affordable(behind + missing[: len(missing) - len(behind)], wanted)
        for start in range(0, len(chosen), PART_COUNT):
            await self._read(sorted(chosen[start : start + PART_COUNT]), wanted)
        self._last = chosen[-1] if chosen else -1

    @staticmethod
    def _affordable(offsets: list[int], sizes: dict[int, int]) -> list[int]:
        """Return the first of these records, at least 1, as many as a round may read."""
        chosen: list[int] = []
        size_bytes = 0
        for offset in offsets[:COUNT_MAX]:
            size_bytes += sizes[offset]
            if chosen and size_bytes > SIZE_BYTES_MAX:
                break
            chosen.append(offset)
        return chosen

    async def _read(self, offsets: list[int], sizes: dict[int, int]) -> None:
        physical_offsets = np.array(offsets, np.int64)
        record_sizes = np.array([sizes[offset] for offset in offsets], np.int32)
        try:
            times = await store_times_ms(self._records, physical_offsets, record_sizes)
        except (*UNREADABLE, DependencyUnavailable):
            return
        self._known |= {offset: time_ms for offset, time_ms in zip(offsets, times, strict=True) if time_ms is not None}
