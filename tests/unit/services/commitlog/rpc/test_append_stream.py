# SPDX-License-Identifier: Apache-2.0
"""Streams of batches: slow callers and the calls that they may block, the size of an answer, and the order."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable

from google.rpc.error_details_pb2 import ErrorInfo
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.machine.failpoints import armed
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.errors import NotEnoughReplicas
from services.commitlog.rpc.append_stream import OUTCOME_SIZE_BYTES, RESPONSE_SIZE_BYTES_MAX, AppendStreamSession
from tests.support.commitlog import BORN_HOST, Machine, append, message, request

WINDOW_BYTES = 1 << 20
SMALL = {"append_request_size_bytes_max": 1 << 16, "append_stream_inflight_bytes_max": WINDOW_BYTES}


class Caller:
    """Sends the same request again and again; counts how many were taken."""

    def __init__(self, machine: Machine, log: OpenLog, raw: bytes, count: int) -> None:
        self.taken_count = 0
        self.stopped = asyncio.Event()
        self.budget = InflightBudget("bytes", WINDOW_BYTES)
        session = AppendStreamSession(log, self.budget, BORN_HOST, machine.process(log).config)
        self.responses = session.responses(self.requests(raw, count))

    async def requests(self, raw: bytes, count: int) -> AsyncIterator[bytes]:
        """Yield the requests, and record when no more requests are read."""
        for _ in range(count):
            self.taken_count += 1
            yield raw

    async def read_one(self) -> list[pb.AppendOutcome]:
        """Read a response."""
        raw = await anext(self.responses)
        assert len(raw) < 2 * RESPONSE_SIZE_BYTES_MAX
        return list(pb.AppendStreamResponse.FromString(raw).outcomes)

    async def read_none(self) -> None:
        """Let the session work until it takes no more requests."""
        before = -1
        while before != self.taken_count:
            before = self.taken_count
            for _ in range(100):
                await asyncio.sleep(0)


async def test_requests_without_bytes_fill_the_window_too() -> None:
    """A caller that sends empty batches and reads no answer can't fill the memory."""
    machine = Machine(**SMALL)
    async with machine.running() as log:
        caller = Caller(machine, log, b"", 1_000_000)
        async with contextlib.aclosing(caller.responses):
            await caller.read_one()
            await caller.read_none()
            assert caller.taken_count <= WINDOW_BYTES // OUTCOME_SIZE_BYTES + 2


async def test_a_caller_that_does_not_read_holds_up_nobody_else() -> None:
    """Answers that wait only for their reader do not count in the budget that all callers share."""
    machine = Machine(**SMALL)
    async with machine.running() as log:
        caller = Caller(machine, log, request(message(bytes(10_000))), 1_000)
        async with contextlib.aclosing(caller.responses):
            await caller.read_one()
            await caller.read_none()
            assert WINDOW_BYTES // 20_000 < caller.taken_count < 1_000
            assert caller.budget.charged == 0


async def test_what_waits_for_the_disk_counts_until_it_is_there() -> None:
    """A batch that waits for the disk counts in the budget until it is synced, also when its stream is gone."""
    machine = Machine(**SMALL)
    async with machine.running() as log:
        raw = request(message(bytes(10_000)), durability=2)
        await append(log)
        caller = Caller(machine, log, raw, 1)
        disk_is_slow = threading.Event()
        with armed("segment.before_sync", disk_is_slow.wait):
            reading = asyncio.create_task(caller.read_one())
            await caller.read_none()
            assert caller.budget.charged == len(raw)
            reading.cancel()
            await asyncio.wait([reading])
            assert caller.budget.charged == len(raw)
            disk_is_slow.set()
            await log.marks.flushed.soon(log.chain.max_physical_offset)
        assert caller.budget.charged == 0


async def test_answers_are_bounded() -> None:
    """A response stays below the clients' limit with any number of waiting outcomes, and all outcomes arrive."""
    machine = Machine(append_stream_inflight_bytes_max=1 << 30)
    async with machine.running() as log:
        for raw in (request(message(topic="../x")), request(message(b""))):
            caller = Caller(machine, log, raw, 20_000)
            async with contextlib.aclosing(caller.responses):
                count = len(await caller.read_one())
                await caller.read_none()
                while count < 20_000:
                    count += len(await caller.read_one())
                assert count == 20_000


Step = bytes | Callable[[], None]


async def outcomes_of(machine: Machine, log: OpenLog, *steps: Step) -> list[str]:
    """Return the outcomes of a stream of requests: a reason, or "" if it was stored. A callable runs in between."""

    async def requests() -> AsyncIterator[bytes]:
        for step in steps:
            if isinstance(step, bytes):
                yield step
            else:
                step()

    session = AppendStreamSession(log, InflightBudget("bytes", WINDOW_BYTES), BORN_HOST, machine.process(log).config)
    responses = [pb.AppendStreamResponse.FromString(raw) async for raw in session.responses(requests())]
    return [reason_of(outcome) for response in responses for outcome in response.outcomes]


def reason_of(outcome: pb.AppendOutcome) -> str:
    """Return the reason of a refusal, "" if there is none."""
    info = ErrorInfo()
    for detail in outcome.error.details:
        if detail.Unpack(info):
            break
    return info.reason


def stream_request(body: bytes, *, needs_previous: bool, topic: str = "orders") -> bytes:
    """Return a request of a stream."""
    return pb.AppendStreamRequest(
        messages=[message(body, topic=topic)], durability=1, needs_previous=needs_previous
    ).SerializeToString()


async def test_no_batch_overtakes_a_refused_batch_that_it_needs() -> None:
    """While a refused batch is on its way again, the batches behind it are refused, also when the log takes batches.

    The sender sends the refused batch again once it has all outcomes. Batches that need none are taken at once.
    """
    machine = Machine()
    async with machine.running() as log:

        def refuse() -> None:
            log.pipeline.refuse_durabilities([1], NotEnoughReplicas)

        def take() -> None:
            log.pipeline.refuse_durabilities([], NotEnoughReplicas)

        first, again = (stream_request(b"a", needs_previous=needs) for needs in (True, False))
        later = [stream_request(body, needs_previous=True) for body in (b"b", b"c")]
        assert await outcomes_of(machine, log, refuse, first, take, *later, again, *later) == [
            "NOT_ENOUGH_REPLICAS", "AFTER_REFUSAL", "AFTER_REFUSAL", "", "", ""
        ]  # fmt: skip
        assert await outcomes_of(machine, log, refuse, again, take, again) == ["NOT_ENOUGH_REPLICAS", ""]


async def test_a_bad_batch_behind_a_refused_batch_is_told_its_own_fault() -> None:
    """A sender learns of all bad messages under way at once. A topic that only the refused batches name is not made."""
    machine = Machine()
    async with machine.running() as log:
        bad = stream_request(b"a", needs_previous=True, topic="no name!")
        behind = stream_request(b"b", needs_previous=True, topic="new")
        outcomes = await outcomes_of(machine, log, bad, behind, bad, behind)
        assert outcomes == ["BAD_TOPIC_NAME", "AFTER_REFUSAL", "BAD_TOPIC_NAME", "AFTER_REFUSAL"]
        assert log.topics.find("new") is None
