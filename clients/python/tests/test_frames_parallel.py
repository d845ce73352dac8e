# SPDX-License-Identifier: Apache-2.0
"""Parallel reading: order, bounded waiting batches, errors in their place, and an end of all threads."""

import random
import threading
import time
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pytest
from reput_client.frames.parallel import Parallel

from clients.python.tests.support import LIMIT_S

BATCH = pa.record_batch({"number": pa.array(range(1_000), pa.int64())})


def batch_of(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array(numbers, pa.int64())})


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("reput-frames")]


def run_of(parts: list[int], read, *, thread_count: int = 4, window_bytes: int = 1 << 20, cut_off=lambda: None):
    return Parallel(parts, read, thread_count=thread_count, window_bytes=window_bytes, cut_off=cut_off)


@pytest.mark.parametrize("thread_count", [1, 3, 64])
@pytest.mark.parametrize("window_bytes", [1, 100, 1 << 20])
def test_batches_come_in_the_order_of_the_parts(thread_count: int, window_bytes: int) -> None:
    """Whichever thread is quick, and however little may wait."""
    chance = random.Random(thread_count + window_bytes)
    pauses = {part: [chance.choice((0.0, 0.0, 0.001)) for _ in range(part % 7)] for part in range(40)}

    def read(part: int) -> Iterator[pa.RecordBatch]:
        for number, pause_s in enumerate(pauses[part]):
            time.sleep(pause_s)
            yield batch_of(part, number)

    run = run_of(list(range(40)), read, thread_count=thread_count, window_bytes=window_bytes)
    found = [(part, batch["number"].to_pylist()) for part, batch in run.batches()]
    assert found == [(part, [part, number]) for part in range(40) for number in range(part % 7)]
    assert threads() == []


def test_nothing_to_read() -> None:
    """No part, and parts without batches."""
    assert list(run_of([], lambda _: iter(())).batches()) == []
    assert list(run_of([1, 2, 3], lambda _: iter(())).batches()) == []


def test_waiting_batches_are_bounded() -> None:
    """Threads read no further than the window, and a batch of the part whose turn it is."""
    read_count = threading.Semaphore(0)
    counts = {"read": 0, "taken": 0}
    lock = threading.Lock()
    most = 0

    def read(_: int) -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(50):
            with lock:
                counts["read"] += 1
                most = max(most, counts["read"] - counts["taken"])
            read_count.release()
            yield BATCH

    window_count, thread_count = 5, 4
    run = run_of(list(range(8)), read, thread_count=thread_count, window_bytes=window_count * BATCH.nbytes)
    for _ in run.batches():
        with lock:
            counts["taken"] += 1
    assert counts == {"read": 400, "taken": 400}
    # A thread holds the batch that it is about to put; the consumer holds one that is not counted yet.
    assert most <= window_count + 1 + thread_count + 1


def test_an_error_comes_after_the_batches_before_it() -> None:
    """Later parts are not begun, and all threads end."""
    begun = []

    def read(part: int) -> Iterator[pa.RecordBatch]:
        begun.append(part)
        yield batch_of(part)
        if part == 2:
            raise ValueError("part 2 is broken")

    batches = run_of(list(range(1_000)), read, thread_count=2, window_bytes=1).batches()
    assert [part for part, _ in islice(batches, 3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="part 2 is broken"):
        next(batches)
    assert len(begun) < 10
    assert threads() == []


@pytest.mark.parametrize("taken_count", [0, 1, 5])
def test_an_early_stop_ends_all_threads(taken_count: int) -> None:
    """Also threads that wait for room, for an answer that never comes, or for the next attempt."""
    cut_off, waiting = threading.Event(), threading.Semaphore(0)

    def read(part: int) -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield batch_of(part)
        waiting.release()
        if part % 2:
            cut_off.wait(LIMIT_S)
        else:
            run.wait(LIMIT_S)
        yield from ()

    run = run_of(list(range(30)), read, cut_off=cut_off.set, window_bytes=1 << 20)
    batches = run.batches()
    for _ in range(taken_count if taken_count < 4 else 3):
        next(batches)
    if taken_count:
        assert waiting.acquire(timeout=LIMIT_S)
    batches.close()
    assert threads() == []
    run.close()


def test_closed_by_one_of_its_own_threads() -> None:
    """As the collector of garbage may do at any moment: it waits for no thread."""
    closed = threading.Event()

    def read(part: int) -> Iterator[pa.RecordBatch]:
        if part == 3:
            run.close()
            closed.set()
        yield batch_of(part)

    run = run_of(list(range(50)), read)
    with pytest.raises(ValueError, match="the read was closed"):
        list(run.batches())
    assert closed.wait(LIMIT_S)
    assert threads() == []


def test_closed_by_another_thread() -> None:
    """A consumer that waits is told."""
    is_reading = threading.Event()

    def read(_: int) -> Iterator[pa.RecordBatch]:
        is_reading.set()
        run.wait(LIMIT_S)
        yield BATCH

    run = run_of([1], read)
    closer = threading.Thread(target=lambda: (is_reading.wait(LIMIT_S), run.close()))
    closer.start()
    with pytest.raises(ValueError, match="the read was closed"):
        list(run.batches())
    closer.join()
    assert threads() == []
