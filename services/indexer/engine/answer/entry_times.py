# SPDX-License-Identifier: Apache-2.0
"""The store times of entries of queues. The entries of many queues share the reads of the log."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from libs.machine.loop import in_steps
from services.indexer.engine.log.record_reader import known_store_times_ms
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.tables.queue import ConsumeQueue

STEP_COUNT = 100


class Entry(NamedTuple):
    """An entry of a queue, which may be gone meanwhile."""

    queue: ConsumeQueue
    queue_offset: int


class _Place(NamedTuple):
    physical_offset: int
    size_bytes: int
    slot: int
    """Index of its time among all times."""


async def entry_times_ms(
    wanted: Sequence[Sequence[Entry]], records: RecordSource, *, size_bytes_max: int
) -> list[list[int | None]]:
    """Return the store times of the first groups of entries, whose messages fit into a size, but at least of a group.

    The time of an entry whose message is damaged or gone is None. Raises IndexDamaged and DependencyUnavailable.
    """
    found: list[list[_Place]] = []
    async for step in in_steps(_fitting(wanted, size_bytes_max), count=STEP_COUNT):
        found += step
    places = sorted(place for group in found for place in group)  # neighbours in the log are read together
    offsets = np.array([place.physical_offset for place in places], np.int64)
    sizes = np.array([place.size_bytes for place in places], np.int32)
    times_of_places = await known_store_times_ms(records, offsets, sizes) if places else []
    times = {place.slot: time_ms for place, time_ms in zip(places, times_of_places, strict=True)}
    slots = iter(range(sum(map(len, wanted))))
    return [[times.get(next(slots)) for _ in group] for group in wanted[: len(found)]]


def _fitting(wanted: Sequence[Sequence[Entry]], size_bytes_max: int) -> Iterator[list[_Place]]:
    """Yield the places of each group until they exceed a size."""
    slot, total_bytes = 0, 0
    for index, group in enumerate(wanted):
        places: list[_Place] = []
        for queue, queue_offset in group:
            units = queue.read(queue_offset, 1)
            places += map(_Place, units.physical_offsets.tolist(), units.record_sizes.tolist(), [slot])
            slot += 1
        total_bytes += sum(place.size_bytes for place in places)
        if index and total_bytes > size_bytes_max:
            return
        yield places
