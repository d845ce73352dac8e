# SPDX-License-Identifier: Apache-2.0
"""Which records of a block a property filter lets pass. Only the properties that it names are taken out of them.

Callers: the event loop's thread. A filter that matches nothing looks at all that there is: others have their turn after
so many bytes and conditions.
"""

import asyncio
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from libs.filters.property_filter import PropertyFilter
from libs.kernel.answer.values_cy import property_values
from libs.requests.errors import RecordDamaged
from services.indexer.engine.log.source import RecordBlock

STEP_SIZE_BYTES_MAX = 256 << 10
"""Bytes of records, each as often as there are conditions, that are looked at before others have their turn."""

LOOK_SIZE_BYTES = 512
"""What a look at a record counts beside its bytes."""


async def passing(where: PropertyFilter, block: RecordBlock, rows: list[int] | NDArray[np.intp]) -> NDArray[np.intp]:
    """Return those of these records of a block, all of them kept, that pass. Raises RecordDamaged."""
    chosen = np.asarray(rows, np.intp)
    if where.passes_all or not len(chosen):
        return chosen
    found = []
    for part in _steps(chosen, block.sizes[chosen], where.condition_count):
        await asyncio.sleep(0)
        found.append(part[_matching(where, block.select(part))])
    return np.concatenate(found)


def _matching(where: PropertyFilter, block: RecordBlock) -> list[int]:
    count = len(block.sizes)
    if not where.names:
        return where.passing((), count)
    try:
        columns = property_values(block.records, block.positions, block.sizes, where.names)
    except ValueError as error:
        raise RecordDamaged(segment="of an answer", position=0, reason=str(error)) from error
    return where.passing(columns, count)


def _steps(rows: NDArray[np.intp], sizes: NDArray[np.int32], condition_count: int) -> Iterator[NDArray[np.intp]]:
    """Yield as many rows at a time, at least one, as may be looked at in one go."""
    costs = (sizes.astype(np.int64) + LOOK_SIZE_BYTES) * condition_count
    numbers = np.cumsum(costs) // STEP_SIZE_BYTES_MAX
    yield from np.split(rows, np.flatnonzero(np.diff(numbers)) + 1)
