# SPDX-License-Identifier: Apache-2.0
"""Settlements of many callers share few calls, and each caller gets its own outcome: both clients, calls in memory."""

import asyncio
import random
import threading
import types
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from reput_client.aio.sharing.crew import AsyncCrew
from reput_client.aio.sharing.settling import AsyncSettler
from reput_client.core.errors import InvalidArgumentError, ReputError, UnavailableError
from reput_client.core.sharing import calls, settling
from reput_client.sync.sharing.crew import Crew
from reput_client.sync.sharing.settling import Settler

from clients.python.tests.support import LIMIT_S
from tests.support.patience import eventually

OUTDATED, BAD, AWAY = "outdated", "bad", "away"
MANY = 64


class Delivery:
    """Answers settlements by their handles. `handles` has the handles of each call, in order."""

    def __init__(self) -> None:
        self.handles: list[list[str]] = []

    def answer(self, call: Any) -> list[ReputError | None]:
        """Return an error for each handle that begins with OUTDATED. BAD and AWAY refuse the whole call."""
        handles = [entry.handle for entry in call.request.entries]
        self.handles.append(handles)
        assert len(handles) <= calls.ENTRY_COUNT_MAX
        for number, handle in enumerate(handles):
            if handle.startswith(BAD):
                raise InvalidArgumentError(f"entries[{number}] of {handle}")
            if handle.startswith(AWAY):
                raise UnavailableError(f"no answer to {handle}")
        return [ReputError(handle) if handle.startswith(OUTDATED) else None for handle in handles]


class Loop(Delivery):
    """Channels of the asynchronous client. A call waits while `gate` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, call: Any) -> Any:
        """See AsyncChannels."""
        await asyncio.sleep(0)
        is_open = self.gate.is_set()
        answer = self.answer(call) if is_open else None
        if not is_open:
            self.handles.append([entry.handle for entry in call.request.entries])
            await self.gate.wait()
            self.handles.pop()
            answer = self.answer(call)
        return answer


class Threads(Delivery):
    """Channels of the synchronous client. A call waits while `gate` is closed, and runs `on_call` first."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.lock = threading.Event(), threading.Lock()
        self.begun = threading.Semaphore(0)
        self.on_call: Callable[[list[str]], None] = lambda _: None

    def run(self, call: Any) -> Any:
        """See Channels."""
        self.begun.release()
        assert self.gate.wait(LIMIT_S)
        self.on_call([entry.handle for entry in call.request.entries])
        with self.lock:
            return self.answer(call)


def ack(*handles: str) -> Sequence[Any]:
    return calls.entries("ack", handles)


def shown(outcome: Any) -> Any:
    """An outcome as something to compare: texts of errors, or of the exception."""
    if isinstance(outcome, BaseException):
        return str(outcome)
    return [error and str(error) for error in outcome]


async def settle_all(subject: AsyncSettler, *handles: str) -> list[Any]:
    async with asyncio.timeout(LIMIT_S):
        found = await asyncio.gather(*(subject.settle(ack(one)) for one in handles), return_exceptions=True)
    return [shown(one) for one in found]


async def test_settlements_of_a_turn_are_one_call() -> None:
    """Each caller gets the outcome of its own entries, also if another caller's entry fails."""
    channels = Loop()
    subject = AsyncSettler(channels)  # type: ignore[arg-type]
    found = await settle_all(subject, "a", OUTDATED, "b")
    assert channels.handles == [["a", OUTDATED, "b"]]
    assert found == [[None], [f"UNKNOWN: {OUTDATED}"], [None]]
    assert await subject.settle(ack(OUTDATED, "c"))
    assert len(channels.handles) == 2


async def test_an_entry_that_is_refused_fails_its_own_caller_alone() -> None:
    """The answer refuses the whole call: then each caller gets a call, and the error names its own entry."""
    channels = Loop()
    found = await settle_all(AsyncSettler(channels), "a", BAD, "b")  # type: ignore[arg-type]
    assert found == [[None], f"UNKNOWN: entries[0] of {BAD}", [None]]


async def test_a_call_that_fails_fails_exactly_its_callers() -> None:
    """Settlements of a later call are settled."""
    channels = Loop()
    subject = AsyncSettler(channels)  # type: ignore[arg-type]
    assert await settle_all(subject, "a", AWAY) == [f"UNKNOWN: no answer to {AWAY}"] * 2
    assert await settle_all(subject, "b") == [[None]]


async def test_settlements_wait_for_calls_under_way_and_share_the_next() -> None:
    """Two calls are under way. A caller that is cancelled meanwhile is not sent, and disturbs no other caller."""
    channels = Loop()
    channels.gate.clear()
    subject = AsyncSettler(channels)  # type: ignore[arg-type]
    tasks = []
    for number in range(MANY):
        tasks.append(asyncio.create_task(subject.settle(ack(str(number)))))
        for _ in range(5):
            await asyncio.sleep(0)
    assert channels.handles == [["0"], ["1"]]
    tasks[0].cancel()
    tasks[5].cancel()
    await asyncio.sleep(0)
    channels.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [number for number, one in enumerate(found) if isinstance(one, BaseException)] == [0, 5]
    assert channels.handles[2:] == [[str(number) for number in range(2, MANY) if number != 5]]


async def test_calls_that_hang_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settlements that wait for too long get a call of their own."""
    monkeypatch.setattr("reput_client.aio.sharing.settling.PATIENCE_S", 0.001)
    channels = Loop()
    subject = AsyncSettler(channels)  # type: ignore[arg-type]
    channels.gate.clear()
    hanging = []
    for number in range(2):
        hanging.append(asyncio.create_task(subject.settle(ack(f"hangs{number}"))))
        for _ in range(5):
            await asyncio.sleep(0)
    waiting = asyncio.create_task(subject.settle(ack("waits")))
    await eventually(lambda: ["waits"] in channels.handles)
    channels.gate.set()
    await asyncio.gather(*hanging, waiting)


async def test_a_call_that_is_cancelled_leaves_no_caller_waiting() -> None:
    """The channel was closed under the call."""

    class Closed(Loop):
        async def run(self, call: Any) -> Any:
            del call
            await asyncio.sleep(0)
            raise asyncio.CancelledError

    found = await asyncio.gather(
        *(asyncio.create_task(AsyncSettler(Closed()).settle(ack(one))) for one in "ab"),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    assert [type(one) for one in found] == [asyncio.CancelledError] * 2


async def test_a_call_has_bounded_entries_and_handles() -> None:
    """A settlement that does not fit has the next call. A single large settlement has a call of its own."""
    channels = Loop()
    subject = AsyncSettler(channels)  # type: ignore[arg-type]
    await asyncio.gather(*(subject.settle(ack(*["h"] * 400)) for _ in range(5)))
    assert sorted(map(len, channels.handles)) == [400, 800, 800]
    channels.handles.clear()
    await settle_all(subject, "x" * settling.SHARED_SIZE_MAX, "a", "x" * (settling.SHARED_SIZE_MAX + 1), "b")
    assert [sum(map(len, some)) <= settling.SHARED_SIZE_MAX + 1 for some in channels.handles] == [True] * 4


@pytest.mark.parametrize("seed", range(20))
async def test_any_callers_get_their_own_outcomes(seed: int) -> None:
    """Callers of random entries, at random moments, of which some give up."""
    chance, channels = random.Random(seed), Loop()
    subject = AsyncSettler(channels)  # type: ignore[arg-type]

    async def one(number: int) -> None:
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        handles = [f"{chance.choice([OUTDATED, BAD, '', '', ''])}{number}/{n}" for n in range(chance.randrange(1, 5))]
        if any(handle.startswith(BAD) for handle in handles):
            with pytest.raises(InvalidArgumentError, match=f"of {BAD}{number}/"):
                await subject.settle(ack(*handles))
        else:
            found = await subject.settle(ack(*handles))
            assert [error is not None for error in found] == [handle.startswith(OUTDATED) for handle in handles]

    tasks = [asyncio.create_task(one(number)) for number in range(100)]
    for _ in range(10):
        await asyncio.sleep(0)
    for task in chance.sample(tasks, 5):
        task.cancel()
    async with asyncio.timeout(LIMIT_S):
        found = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(one) for one in found if one is not None} <= {asyncio.CancelledError}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released for each thread that waits for others' calls. Threads are patient."""
    waits = threading.Semaphore(0)

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.release()
            return super().wait(timeout)

    names = types.SimpleNamespace(Event=Watched, Lock=threading.Lock)
    monkeypatch.setattr("reput_client.sync.sharing.settling.threading", names)
    monkeypatch.setattr("reput_client.sync.sharing.settling.PATIENCE_S", LIMIT_S)
    return waits


def begin(
    pool: ThreadPoolExecutor, subject: Settler, channels: Threads, waits: threading.Semaphore, *handles: str
) -> list[Future[Any]]:
    """Begin settlements in threads. Two have calls under way when this returns, the others wait for the next call."""
    futures = []
    for number, handle in enumerate(handles):
        futures.append(pool.submit(subject.settle, ack(handle)))
        assert (channels.begun if number < 2 else waits).acquire(timeout=LIMIT_S)
    return futures


def assert_leads_are_back(subject: Settler, channels: Threads) -> None:
    """Two calls are under way at once again."""
    channels.gate.clear()
    channels.on_call = lambda _: None
    while channels.begun.acquire(blocking=False):
        pass
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(subject.settle, ack(one)) for one in "ab"]
        begun = [channels.begun.acquire(timeout=LIMIT_S) for _ in futures]
        channels.gate.set()
        for future in futures:
            future.result(LIMIT_S)
    assert begun == [True, True]


def test_threads_share_the_next_call(waits: threading.Semaphore) -> None:
    """Two threads have calls under way, all others share the third call, and each gets its own outcome."""
    channels = Threads()
    subject = Settler(channels)  # type: ignore[arg-type]
    handles = [f"{OUTDATED if number % 3 == 0 else ''}{number}" for number in range(MANY)]
    with ThreadPoolExecutor(MANY) as pool:
        futures = begin(pool, subject, channels, waits, *handles)
        channels.gate.set()
        found = [shown(future.result(LIMIT_S)) for future in futures]
    assert found == [[f"UNKNOWN: {one}"] if one.startswith(OUTDATED) else [None] for one in handles]
    assert len(channels.handles) <= 4
    assert sorted(one for some in channels.handles for one in some) == sorted(handles)


def test_a_refused_entry_fails_its_own_thread_alone(waits: threading.Semaphore) -> None:
    """Also if the thread's entry shared a call."""
    channels = Threads()
    subject = Settler(channels)  # type: ignore[arg-type]
    handles = ["0", "1", "2", BAD, "4", "5"]
    with ThreadPoolExecutor(MANY) as pool:
        futures = begin(pool, subject, channels, waits, *handles)
        channels.gate.set()
        failures = [future.exception(LIMIT_S) for future in futures]
    assert [one and str(one) for one in failures] == [None] * 3 + [f"UNKNOWN: entries[0] of {BAD}"] + [None] * 2


def test_an_interrupted_thread_leaves_its_call_to_others(waits: threading.Semaphore) -> None:
    """Ctrl-C ends the call of a thread that has others' entries: another thread sends them again."""
    channels = Threads()
    subject = Settler(channels)  # type: ignore[arg-type]
    interrupts = iter([KeyboardInterrupt])

    def interrupt(handles: list[str]) -> None:
        if len(handles) > 1 and (error := next(interrupts, None)) is not None:
            raise error

    channels.on_call = interrupt
    with ThreadPoolExecutor(MANY) as pool:
        futures = begin(pool, subject, channels, waits, *map(str, range(MANY)))
        channels.gate.set()
        failures = [future.exception(LIMIT_S) for future in futures]
    assert [type(one) for one in failures if one is not None] == [KeyboardInterrupt]
    assert_leads_are_back(subject, channels)


def test_threads_whose_calls_hang_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has waited for too long sends a call of its own."""
    monkeypatch.setattr("reput_client.sync.sharing.settling.PATIENCE_S", 0.001)
    channels = Threads()
    subject = Settler(channels)  # type: ignore[arg-type]
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(subject.settle, ack(one)) for one in "abc"]
        for _ in range(3):
            assert channels.begun.acquire(timeout=LIMIT_S)
        channels.gate.set()
        for future in futures:
            future.result(LIMIT_S)
    assert_leads_are_back(subject, channels)


@pytest.mark.parametrize("patience_s", [0.0, LIMIT_S])
def test_any_threads_get_their_own_outcomes(monkeypatch: pytest.MonkeyPatch, patience_s: float) -> None:
    """Many threads of many settlements each. None waits for ever, and no lead is lost."""
    monkeypatch.setattr("reput_client.sync.sharing.settling.PATIENCE_S", patience_s)
    channels = Threads()
    channels.gate.set()
    subject = Settler(channels)  # type: ignore[arg-type]

    def work(number: int) -> None:
        for n in range(100):
            word = ("", OUTDATED, BAD, "")[(number + n) % 4]
            handle = f"{word}{number}/{n}"
            if word == BAD:
                with pytest.raises(InvalidArgumentError, match=f"of {handle}"):
                    subject.settle(ack(handle))
            else:
                assert shown(subject.settle(ack(handle))) == ([f"UNKNOWN: {handle}"] if word == OUTDATED else [None])

    with ThreadPoolExecutor(16) as pool:
        for future in [pool.submit(work, number) for number in range(16)]:
            future.result(LIMIT_S)
    assert_leads_are_back(subject, channels)


async def test_works_end_one_by_one_and_make_room() -> None:
    """At most `size` works run. A work that ends makes room, whichever it is."""
    crew, gates = AsyncCrew(3), [asyncio.Event() for _ in range(4)]
    for gate in gates[:3]:
        assert await crew.has_room(LIMIT_S)
        crew.start(gate.wait)  # type: ignore[arg-type]
    assert not await crew.has_room(0.001)
    gates[1].set()
    assert await crew.has_room(LIMIT_S)
    crew.start(gates[3].wait)  # type: ignore[arg-type]
    assert not await crew.has_room(0.001)
    for gate in gates:
        gate.set()
    await crew.end()


def test_threads_end_one_by_one_and_make_room() -> None:
    """The same of the synchronous client."""
    crew, gates = Crew(3), [threading.Event() for _ in range(4)]
    for gate in gates[:3]:
        assert crew.has_room(LIMIT_S)
        crew.start(gate.wait)  # type: ignore[arg-type]
    assert not crew.has_room(0.001)
    gates[1].set()
    assert crew.has_room(LIMIT_S)
    crew.start(gates[3].wait)  # type: ignore[arg-type]
    assert not crew.has_room(0.001)
    for gate in gates:
        gate.set()
    crew.end()
