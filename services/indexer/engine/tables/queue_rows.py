# SPDX-License-Identifier: Apache-2.0
"""place: decides which records of a batch are entered into their queue, begin it again, or are stepped over.

The rules, in the order of the log, for a record behind the queue's last record:
- with the end of the queue as its queue offset it continues the queue;
- with queue offset 0 it begins a new generation of the queue, and the older units are dropped;
- in a queue without a unit of a kept record it begins the queue anew, at any queue offset;
- with any other queue offset it fits no generation and is stepped over.
So the content of a queue depends on the log alone.
RocketMQ drops a queue's units and its counter when its topic is deleted, so that the next record has queue offset 0;
the log itself has no note of it. The CommitLog assigns queue offsets by the same rules (LogScan).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.formats.indexes.consume_queue import has_place
from libs.formats.indexes.consume_queue_ext import ADDRESS_MAX
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import StepReason
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.stepped_over import SteppedOver
from services.indexer.errors import QueueConflict

Rows = NDArray[np.int32]


class QueueRows(NamedTuple):
    """The decision for the rows of a batch that belong to a queue."""

    topic: str
    queue_id: int
    entered: Rows
    """Rows with consecutive queue offsets, for the end of the queue or its new begin."""
    stepped: Rows
    begins_again: bool = False
    """Whether units of the queue, or rows before the entered rows, are of an older generation."""
    reason: StepReason = StepReason.QUEUE_OFFSET
    """The reason why rows are stepped over."""


def all_stepped(topic: str, queue_id: int, rows: Rows, reason: StepReason) -> QueueRows:
    """Step over all rows of a queue for the same reason."""
    return QueueRows(topic, queue_id, rows[:0], rows, reason=reason)


def joined(placed: list[QueueRows]) -> list[QueueRows]:
    """Join the SET_APART entries of each queue into a single entry.

    A queue can have two of them: its records that are batches of messages have a queue index of their own.
    """
    parts: dict[tuple[str, int], list[Rows]] = {}
    for part in placed:
        if part.reason is StepReason.SET_APART:
            parts.setdefault((part.topic, part.queue_id), []).append(part.stepped)
    others = [part for part in placed if part.reason is not StepReason.SET_APART]
    return others + [
        all_stepped(*name, np.sort(np.concatenate(rows)), StepReason.SET_APART) for name, rows in parts.items()
    ]


def by_queue(batch: DispatchBatch, indexes: Sequence[int]) -> Iterator[tuple[int, Rows]]:
    """Yield each of these queue indexes that has rows, and their numbers. `indexes` ascend."""
    is_wanted = np.zeros(len(batch.queues) + 1, np.bool_)  # NO_QUEUE is the last
    is_wanted[list(indexes)] = True
    wanted = np.flatnonzero(is_wanted[batch.queue_indexes]).astype(np.int32)
    order = wanted[np.argsort(batch.queue_indexes[wanted], kind="stable")]
    found = batch.queue_indexes[order]
    starts = np.searchsorted(found, indexes, side="left")
    ends = np.searchsorted(found, indexes, side="right")
    for index, start, end in zip(indexes, starts.tolist(), ends.tolist(), strict=True):
        if start < end:
            yield index, order[start:end]


def place(
    name: tuple[str, int],
    queue: ConsumeQueue | None,
    rows: Rows,
    batch: DispatchBatch,
    *,
    min_physical_offset: int = 0,
    noted: SteppedOver,
) -> QueueRows:
    """Decide, and change nothing. Records already in the queue must be the same, or QueueConflict is raised.

    `min_physical_offset` is the first byte of the log that is kept; `noted` has the records that were stepped over
    before.
    """
    queue_offsets = batch.queue_offsets[rows]
    end, last, is_spent = 0, -1, True
    if queue is not None and not queue.is_empty:
        end, last = queue.max_queue_offset, queue.last_physical_offset
        is_spent = last < min_physical_offset
    is_behind = batch.physical_offsets[rows[0]] > last
    if is_behind and queue_offsets[0] == end and (queue_offsets[1:] - queue_offsets[:-1] == 1).all():
        return QueueRows(*name, rows, rows[:0])  # the usual case
    built = 0
    if queue is not None and not is_behind:
        built = int(np.searchsorted(batch.physical_offsets[rows], last, side="right"))
        _compare(queue, rows[:built], batch, noted)
    entered, stepped, begins_again = _follow(rows[built:], queue_offsets[built:].tolist(), end, is_spent=is_spent)
    return QueueRows(*name, entered, stepped, begins_again)


def _follow(rows: Rows, queue_offsets: list[int], known_end: int, *, is_spent: bool) -> tuple[Rows, Rows, bool]:
    """Decide for each row behind the end of a queue. With `is_spent` any queue offset begins it anew.

    Returns the entered rows, the rows stepped over, and whether the queue begins again.
    """
    entered: list[int] = []
    stepped: list[int] = []
    end, begins_again = known_end, False
    for index, queue_offset in enumerate(queue_offsets):
        if has_place(queue_offset, end=end, is_empty=is_spent and not entered):
            if queue_offset != end:
                begins_again = begins_again or end > 0
                entered = []
            entered.append(index)
            end = queue_offset + 1
        else:
            stepped.append(index)
    return rows[entered], rows[stepped], begins_again


def _compare(queue: ConsumeQueue, rows: Rows, batch: DispatchBatch, noted: SteppedOver) -> None:
    """Check that records up to the queue's last record are its units, as far as these are of its generation and kept.

    Delivery times may differ: the log computes them by its current delay levels. Tags codes may differ where the unit
    has an address in RocketMQ's extension of the queue. Raises IndexDamaged and QueueConflict.
    """
    start, end = queue.min_queue_offset, queue.max_queue_offset
    oldest = queue.place_at(start)[0] if start < end else queue.last_physical_offset + 1
    rows = rows[int(np.searchsorted(batch.physical_offsets[rows], oldest)) :]
    if not len(rows):
        return
    wanted = batch.queue_offsets[rows]
    start, end = max(start, int(wanted.min())), min(end, int(wanted.max()) + 1)
    stored = queue.read(start, max(0, end - start))
    if (found_end := start + len(stored.physical_offsets)) < end:
        raise queue.damage_at(found_end)
    same = (wanted >= start) & (wanted < end)
    units, there = (wanted - start)[same], rows[same]
    same[same] = (
        (stored.physical_offsets[units] == batch.physical_offsets[there])
        & (stored.record_sizes[units] == batch.record_sizes[there])
        & (
            (stored.tags_codes[units] == batch.tags_codes[there])
            | (stored.tags_codes[units] <= ADDRESS_MAX)
            | (queue.topic == SCHEDULE_TOPIC)
        )
    )
    for row in rows[~same].tolist():
        if not noted.has(queue.topic, queue.queue_id, int(batch.physical_offsets[row])):
            raise QueueConflict(
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=int(batch.queue_offsets[row]),
                physical_offset=int(batch.physical_offsets[row]),
            )
