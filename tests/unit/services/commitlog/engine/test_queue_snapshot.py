# SPDX-License-Identifier: Apache-2.0
"""The snapshot of the queue offsets: its content, and that the event loop does not wait while it is made."""

import threading
from collections.abc import Iterator

import pytest

from libs.formats.state.queue_snapshot import PART_COUNT, QueueCounter, QueueSnapshot, SegmentTimes
from libs.kernel.append.topic_table import Counter, TopicTable
from services.commitlog.engine.keep import queue_snapshot
from tests.support.commitlog import DATA_DIR, Machine, append, message


@pytest.mark.parametrize("count", [0, 1, PART_COUNT, 2 * PART_COUNT + 1])
def test_it_comes_back_as_it_was(count: int) -> None:
    """Counters of any number, and topics of any bytes, are loaded as they were saved."""
    machine = Machine()
    machine.fs.make_directory(DATA_DIR / "reput")
    counters = [(b"t\xff%d" % (number % 7), number, number + 1) for number in range(count)]
    snapshot = QueueSnapshot(9_000, 5, [SegmentTimes(0, 1, 5)], [])
    queue_snapshot.save(machine.fs, DATA_DIR, snapshot, iter(counters))
    loaded = queue_snapshot.load(machine.fs, DATA_DIR)
    assert loaded is not None
    assert (loaded.end_physical_offset, loaded.segment_times) == (9_000, snapshot.segment_times)
    assert loaded.counters == [QueueCounter(topic.decode("latin-1"), *rest) for topic, *rest in counters]


async def test_the_loop_does_not_walk_over_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters are as of the call, and the thread that writes the file reads them, also during appends."""
    threads: set[int] = set()
    frozen_counters = TopicTable.frozen_counters

    def watched(table: TopicTable) -> Iterator[Counter]:
        return _noting_threads(frozen_counters(table), threads)

    monkeypatch.setattr(TopicTable, "frozen_counters", watched)
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(), message())
        await log.snapshot.save()
    assert threads
    assert threading.get_ident() not in threads
    loaded = queue_snapshot.load(machine.fs, DATA_DIR)
    assert loaded is not None
    assert sum(counter.next_queue_offset for counter in loaded.counters) == 2


def _noting_threads(counters: Iterator[Counter], threads: set[int]) -> Iterator[Counter]:
    for counter in counters:
        threads.add(threading.get_ident())
        yield counter
