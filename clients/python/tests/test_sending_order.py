# SPDX-License-Identifier: Apache-2.0
"""The send queue keeps the order of messages through refusals."""

import grpc

from clients.python.tests.support import status
from clients.python.tests.test_sending import FULL, Bench

BEHIND = status(grpc.StatusCode.ABORTED, "AFTER_REFUSAL")
LEASE_OVER = status(grpc.StatusCode.UNAVAILABLE, "LEASE_OVER")


def test_batches_behind_a_refused_batch_wait_for_it() -> None:
    """They count no attempt. Nothing is sent before all are answered, and a single batch until a batch is stored."""
    bench = Bench(retries=1)
    bench.add(*"abcdefghijklmnopqrst")
    first = bench.queue.pop(0.0)
    assert first is not None
    assert not first.needs_previous
    later = [bench.queue.pop(0.0) for _ in range(2)]
    assert [batch.needs_previous for batch in later if batch is not None] == [True, True]
    bench.answer(FULL)
    bench.now_s = 1.0
    assert (bench.pop(), bench.queue.wait_s(bench.now_s)) == (None, None)
    bench.answer(BEHIND)
    assert (bench.pop(), bench.queue.wait_s(bench.now_s)) == (None, None)
    bench.answer(BEHIND)
    again = bench.queue.pop(1.0)
    assert again is not None
    assert (bench.names_of(again), again.needs_previous, again.attempt) == ([*"abcd"], False, 1)
    assert (bench.pop(), bench.queue.wait_s(bench.now_s)) == (None, None)
    bench.answer([*"abcd"])
    rest = [bench.queue.pop(1.0) for _ in range(4)]
    assert [(bench.names_of(batch), batch.needs_previous, batch.attempt) for batch in rest if batch is not None] == [
        ([*"efgh"], False, 0), ([*"ijkl"], True, 0), ([*"mnop"], True, 0), ([*"qrst"], True, 0)
    ]  # fmt: skip
    bench.answer(*(bench.names_of(batch) for batch in rest if batch is not None))
    assert set(bench.summary().values()) == {"stored"}


def test_the_rest_of_a_refused_batch_comes_before_the_batches_behind_it() -> None:
    """A bad message fails alone, and all others keep their order."""
    bench = Bench()
    bench.add(*"abcdefgh")
    assert [bench.pop(), bench.pop()] == [[*"abcd"], [*"efgh"]]
    bench.answer(
        status(grpc.StatusCode.INVALID_ARGUMENT, "BODY_TOO_LARGE", metadata={"field": "messages[1].body"}), BEHIND
    )
    for names in ("acd", "efgh"):
        assert bench.pop() == [*names]
        bench.answer([*names])
    assert bench.stored == [*"acdefgh"]
    assert bench.summary()["b"] == "InvalidArgumentError"


def test_a_log_whose_lease_is_over_gets_no_further_batch() -> None:
    """The next log gets all batches in their order, first alone."""
    bench = Bench()
    bench.add(*"abcdefghijkl")
    assert [bench.pop(), bench.pop()] == [[*"abcd"], [*"efgh"]]
    bench.answer(LEASE_OVER, BEHIND)
    bench.now_s = 1.0
    assert bench.pop() is None
    moved = bench.queue.pop_moved()
    assert moved is not None
    bench.cut(moved)
    for names in ("abcd", "efgh", "ijkl"):
        assert bench.pop() == [*names]
        bench.answer([*names])
    assert bench.stored == [*"abcdefghijkl"]


def test_a_batch_that_needs_no_other_is_not_sent_again() -> None:
    """A server that refuses all batches as behind a refused batch gets the batch once."""
    bench = Bench()
    bench.add(*"abcd")
    assert bench.pop() == [*"abcd"]
    bench.answer(BEHIND)
    bench.now_s = 100.0
    assert bench.pop() is None
    assert set(bench.summary().values()) == {"AbortedError"}
