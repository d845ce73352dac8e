# SPDX-License-Identifier: Apache-2.0
"""The records of queues that an Indexer shows, and the records that it shall show by the rules."""

from collections.abc import Callable
from pathlib import Path

from libs.formats.indexes.consume_queue import has_place
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog
from tests.support.patience import eventually

Survives = Callable[[Path, int], bool]
"""Whether a page of a file survives."""


def views(indexer: Indexer) -> dict[tuple[str, int], tuple[int, int, list[int]]]:
    """Of each queue its bounds and the places of its records."""
    found = {}
    for topic in indexer.indexes.queues.topics():
        for queue_id in indexer.indexes.queues.queue_ids(topic):
            queue = indexer.indexes.queues.find(topic, queue_id)
            assert queue is not None
            low, high = queue.min_queue_offset, queue.max_queue_offset
            if high:
                found[topic, queue_id] = (low, high, queue.read(low, high - low).physical_offsets.tolist())
    return found


def wanted(log: FakeLog) -> dict[tuple[str, int], tuple[int, int, list[int]]]:
    """The same by the rules, from a log that is whole."""
    places: dict[tuple[str, int], list[int]] = {}
    for made in log.records:
        queue = places.setdefault((made.topic, made.queue_id), [])
        if has_place(made.queue_offset, end=len(queue), is_empty=False):
            del queue[made.queue_offset :]
            queue.append(made.physical_offset)
    return {name: (0, len(queue), queue) for name, queue in places.items()}


async def followed(indexer: Indexer, log: FakeLog) -> None:
    """Wait until the Indexer has entered all records of the log."""
    await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)


async def killed(indexer: Indexer, fs: MemoryFs, survives: Survives) -> None:
    """Kill an Indexer, with the loss of pages that do not survive."""
    await indexer.abandon()
    fs.crash(survives)
