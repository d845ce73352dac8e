# SPDX-License-Identifier: Apache-2.0
"""Applies a property filter to the records of a block. It reads only the properties that the filter names.

Callers: the event loop's thread. A filter that matches nothing reads all records, so it yields to other tasks after
STEP_SIZE_BYTES_MAX, counted as bytes times conditions.
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
"""Bytes of records, multiplied by the number of conditions, that are read before other tasks run."""

LOOK_SIZE_BYTES = 512
"""The cost of a record beside its bytes, in bytes."""


async def passing(where: PropertyFilter, block: RecordBlock, rows: list[int] | NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows, out of these rows of a block, that pass. All must be of kept records. Raises RecordDamaged."""
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
    """Yield the rows in parts. A part has as many rows, at least 1, as may be read without a pause."""
    costs = (sizes.astype(np.int64) + LOOK_SIZE_BYTES) * condition_count
    numbers = np.cumsum(costs) // STEP_SIZE_BYTES_MAX
    yield from np.split(rows, np.flatnonzero(np.diff(numbers)) + 1)
