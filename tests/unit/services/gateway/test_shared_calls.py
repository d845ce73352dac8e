# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of many callers share calls to Delivery, and each caller gets its own outcomes."""

import asyncio
from collections.abc import Sequence

import pytest

from services.gateway.engine.shared_calls import CALL_COUNT_MAX, TOGETHER_SIZE_MAX, SharedCalls


class Settled:
    """Settles when it may. Records the handles of each call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, handles: Sequence[str]) -> list[str]:
        """Answer with the handles in capitals."""
        self.calls.append(list(handles))
        await self.may_answer.wait()
        if "bad" in handles:
            raise LookupError("bad")
        return [handle.upper() for handle in handles]


async def test_callers_of_one_turn_share_a_call() -> None:
    """Callers of the same turn share a call, and each gets the outcomes of its own handles."""
    settled = Settled()
    acks = SharedCalls(settled, entry_count_max=10, size_of=len)
    assert await asyncio.gather(acks.outcomes(["a", "b"]), acks.outcomes(["c"])) == [["A", "B"], ["C"]]
    assert settled.calls == [["a", "b", "c"]]
    assert await acks.outcomes(["d"]) == ["D"], "the next turn has a call of its own"


async def test_the_rest_gathers_while_calls_are_under_way() -> None:
    """While calls are under way further handles are collected, so that a slow answer makes calls larger, not more."""
    settled = Settled()
    settled.may_answer.clear()
    acks = SharedCalls(settled, entry_count_max=10, size_of=len)
    callers = []
    for number in range(CALL_COUNT_MAX + 4):
        callers.append(asyncio.create_task(acks.outcomes([f"h{number}"])))
        for _ in range(3):
            await asyncio.sleep(0)
    assert settled.calls == [[f"h{number}"] for number in range(CALL_COUNT_MAX)]
    settled.may_answer.set()
    assert await asyncio.gather(*callers) == [[f"H{number}"] for number in range(CALL_COUNT_MAX + 4)]
    assert settled.calls[CALL_COUNT_MAX] == [f"h{number}" for number in range(CALL_COUNT_MAX, CALL_COUNT_MAX + 4)]


@pytest.mark.parametrize("turn_count", range(4))
async def test_nobody_is_forgotten(turn_count: int) -> None:
    """An ack that arrives in the turn in which a call ends is sent, too."""

    async def settle(handles: Sequence[str]) -> Sequence[str]:
        for _ in range(turn_count):
            await asyncio.sleep(0)
        return handles

    acks = SharedCalls(settle, entry_count_max=10, size_of=len)

    async def caller(pause_count: int) -> None:
        for number in range(50):
            assert await acks.outcomes([f"{pause_count} {number}"]) == [f"{pause_count} {number}"]
            for _ in range(pause_count):
                await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(*map(caller, range(5)))


async def test_a_call_has_at_most_so_many_handles() -> None:
    """A call has at most the limit of handles, unless a single caller has more, which Delivery refuses."""
    settled = Settled()
    acks = SharedCalls(settled, entry_count_max=3, size_of=len)
    outcomes = await asyncio.gather(acks.outcomes(["a", "b"]), acks.outcomes(["c", "d"]), acks.outcomes(list("efgh")))
    assert outcomes == [["A", "B"], ["C", "D"], ["E", "F", "G", "H"]]
    assert settled.calls == [["a", "b"], ["c", "d"], ["e", "f", "g", "h"]]


async def test_nonsense_goes_alone() -> None:
    """A call with too many handles is refused alone, without the handles of other callers."""
    settled = Settled()
    acks = SharedCalls(settled, entry_count_max=10, size_of=len)
    large = "x" * TOGETHER_SIZE_MAX
    await asyncio.gather(acks.outcomes(["a"]), acks.outcomes([large]), acks.outcomes(["b"]), acks.outcomes(["c"]))
    assert settled.calls == [["a"], [large], ["b", "c"]]


async def test_a_call_that_fails_fails_for_all_that_share_it() -> None:
    """A failed call fails for all callers that share it, and for no later caller."""
    acks = SharedCalls(Settled(), entry_count_max=10, size_of=len)
    first, second = asyncio.create_task(acks.outcomes(["a"])), asyncio.create_task(acks.outcomes(["bad"]))
    await asyncio.wait([first, second])
    for one in (first, second):
        with pytest.raises(LookupError):
            one.result()
    assert await acks.outcomes(["c"]) == ["C"]


async def test_a_refused_call_is_split() -> None:
    """If a shared call is refused because of a caller's entry, the other callers get their outcomes."""
    settled = Settled()
    acks = SharedCalls(settled, entry_count_max=10, size_of=len, may_be_split=lambda error: str(error) == "bad")
    callers = [asyncio.create_task(acks.outcomes([name])) for name in ("a", "bad", "c")]
    await asyncio.wait(callers)
    assert [caller.exception() is None and caller.result() for caller in callers] == [["A"], False, ["C"]]
    assert settled.calls == [["a", "bad", "c"], ["a"], ["bad"], ["c"]]


async def test_a_caller_that_goes_takes_nothing_back() -> None:
    """If a caller disconnects its message is settled all the same, and the others are answered."""
    settled = Settled()
    settled.may_answer.clear()
    acks = SharedCalls(settled, entry_count_max=10, size_of=len)
    gone, stays = asyncio.create_task(acks.outcomes(["a"])), asyncio.create_task(acks.outcomes(["b"]))
    for _ in range(3):
        await asyncio.sleep(0)
    gone.cancel()
    settled.may_answer.set()
    assert await stays == ["B"]
    assert settled.calls == [["a", "b"]]
