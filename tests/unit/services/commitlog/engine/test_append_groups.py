# SPDX-License-Identifier: Apache-2.0
"""Requests that arrive in the same turn are written as a piece, and each gets the answer that it would get alone."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.machine.failpoints import armed
from libs.requests.errors import BadTopicName, ServiceError
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.append import AppendedBatch, AppendPipeline
from services.commitlog.engine.write.gate import Reason
from services.commitlog.engine.write.groups import GROUP_COUNT_MAX, AppendGroups
from services.commitlog.errors import AppendsRefused, BatchTooLarge, StoreSealed
from tests.support.commitlog import BORN_HOST, Machine, append, bodies, message, request

COUNT = 20
SIZE_BYTES_MAX = 10_000
Answers = list[AppendedBatch | BaseException]


@dataclass
class Pieces:
    """The pieces that were written: the number of requests given for each, and the number of its batches."""

    given: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)


@contextmanager
def pieces() -> Iterator[Pieces]:
    """The pieces of the block."""
    found = Pieces()
    write = AppendPipeline.append_group

    def counted(self: AppendPipeline, requests: Sequence[bytes], born_hosts: Sequence[bytes]) -> list[AppendedBatch]:
        found.given.append(len(requests))
        batches = write(self, requests, born_hosts)
        found.written.append(len(batches))
        return batches

    with mock.patch.object(AppendPipeline, "append_group", counted):
        yield found


async def together(groups: AppendGroups, requests: Sequence[bytes]) -> Answers:
    """Append requests in the same turn, after a turn in which several requests arrived."""
    for _ in range(2):  # these requests leave nothing in the log
        await asyncio.gather(*(groups.append(b"", BORN_HOST) for _ in range(2)), return_exceptions=True)
    return await asyncio.gather(*(groups.append(one, BORN_HOST) for one in requests), return_exceptions=True)


def of(log: OpenLog) -> AppendGroups:
    """Groups for a log that has the topic."""
    return AppendGroups(log.pipeline, SIZE_BYTES_MAX)


def numbered(count: int = COUNT) -> list[bytes]:
    """Requests with a single message each."""
    return [request(message(b"%d" % number)) for number in range(count)]


async def test_those_of_one_turn_are_one_piece() -> None:
    """Requests of the same turn are a piece with a place for each batch; a request that is alone does not wait."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        groups = of(log)
        with pieces() as found:
            answers = await together(groups, numbered())
            await groups.append(request(message(b"while several came in the turn before")), BORN_HOST)
            assert found.written[-1] == COUNT
            alone = [await groups.append(request(message(b"alone")), BORN_HOST) for _ in range(3)]
            assert found.written[-1] == COUNT
        batches = [answer for answer in answers if isinstance(answer, AppendedBatch)]
        ends = [batch.end_physical_offset for batch in batches]
        assert [batch.start_physical_offset for batch in batches[1:]] == ends[:-1]
        queue_offsets = [memoryview(batch.queue_offsets).cast("q").tolist() for batch in batches]
        assert queue_offsets == [[number + 1] for number in range(COUNT)]
        assert bodies(log)[1 : COUNT + 1] == [b"%d" % number for number in range(COUNT)]
        assert log.pipeline.batch_count == 1 + COUNT + 1 + len(alone)


async def test_each_gets_its_own_answer() -> None:
    """A request that is written alone gets its own answer.

    Such requests are bad, have a writer, are repeated, name a new topic, or are large.
    """
    writer = pb.Writer(id="w", sequence=0)
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        odd = {
            3: request(message(topic="no/name")),
            7: request(message(b"writer's"), writer=writer),
            8: request(message(b"writer's"), writer=writer),
            11: request(message(b"new", topic="new")),
            13: request(message(bytes(SIZE_BYTES_MAX))),
            14: b"\xff",
        }
        answers = await together(of(log), [odd.get(n, one) for n, one in enumerate(numbered())])
        failures = {n: type(answer) for n, answer in enumerate(answers) if isinstance(answer, BaseException)}
        assert failures.pop(3) is BadTopicName
        assert issubclass(failures.pop(14), ServiceError)
        assert not failures
        assert [n for n, answer in enumerate(answers) if getattr(answer, "is_repeated", False)] == [8]
        stored = bodies(log)
        assert sorted(one for one in stored if one.isdigit()) == sorted(b"%d" % n for n in range(COUNT) if n not in odd)
        assert [stored.count(one) for one in (b"writer's", b"new", bytes(SIZE_BYTES_MAX))] == [1, 1, 1]


async def test_segments_end_within_a_piece() -> None:
    """Batches that do not fit into a segment are written to the next segment; none is lost or stored twice."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        contents = [b"%3d" % number + bytes(700) for number in range(200)]
        answers = await together(of(log), [request(message(one)) for one in contents])
        assert not [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(log.chain.segments) > 1
        assert sorted(bodies(log)[1:]) == contents


@pytest.mark.parametrize(
    ("body_bytes", "piece_count"), [(40_000, (1 << 20) // len(request(message(bytes(40_000))))), (10, GROUP_COUNT_MAX)]
)
async def test_a_piece_has_bounds(body_bytes: int, piece_count: int) -> None:
    """A piece is bounded in bytes, so that the event loop continues meanwhile, and in requests."""
    async with Machine(segment_size_bytes=32 << 20).running() as log:
        await append(log, message(b"topic"))
        with pieces() as found:
            await together(AppendGroups(log.pipeline, 1 << 20), [request(message(bytes(body_bytes)))] * 200)
        assert max(found.written) == piece_count
        assert len(bodies(log)) == 201


async def test_many_bad_ones_cost_little() -> None:
    """Requests behind a bad request are tried again, but never all waiting requests at once."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        with pieces() as found:
            await together(of(log), [b"\xff"] * 2_000)
        assert found.written.count(0) >= 1_900
        assert sum(found.given) <= GROUP_COUNT_MAX * 2_100


async def test_a_closed_gate_is_told_to_each() -> None:
    """Each caller gets the reason for which the gate is closed."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        groups = of(log)
        log.gate.put(Reason.DISK_RESERVE_SHORT, holds=True)
        answers = await together(groups, numbered())
        assert [type(answer) for answer in answers] == [AppendsRefused] * COUNT
        log.gate.put(Reason.DISK_RESERVE_SHORT, holds=False)
        assert len(bodies(log)) == 1


@pytest.mark.parametrize("point", ["append.before_write", "append.after_write"])
async def test_what_fails_is_not_tried_again(point: str) -> None:
    """Each caller of a piece that failed gets the error; the piece is not tried again and is stored at most once."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        with armed(point, "raise"):
            answers = await together(of(log), numbered())
        assert all(isinstance(answer, OSError) for answer in answers)
        assert len(bodies(log)) == (1 if point == "append.before_write" else 1 + COUNT)


async def test_a_write_that_fails_seals() -> None:
    """A failed write seals the log for all requests of the piece, and none is acknowledged."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"topic"))
    groups = of(log)
    await together(groups, [])
    with mock.patch("libs.segments.segment.Segment.put", side_effect=StoreSealed):
        answers = await together(groups, numbered())
    assert [type(answer) for answer in answers] == [StoreSealed] * COUNT


async def test_who_went_away_is_not_written() -> None:
    """A call that was cancelled before its turn ended leaves nothing in the log; the others are written."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        groups = of(log)
        await together(groups, [])
        tasks = [asyncio.create_task(groups.append(one, BORN_HOST)) for one in numbered()]
        asyncio.get_running_loop().call_soon(tasks[5].cancel)
        await asyncio.wait(tasks)
        assert [n for n, task in enumerate(tasks) if task.cancelled()] == [5]
        assert b"5" not in bodies(log)
        assert len(bodies(log)) == COUNT


async def test_too_large_for_the_store() -> None:
    """A request that is too large for the store is written alone, and its caller gets the refusal."""
    async with Machine(append_request_size_bytes_max=SIZE_BYTES_MAX).running() as log:
        await append(log, message(b"topic"))
        (answer, _) = await together(log.groups, [request(message(bytes(SIZE_BYTES_MAX))), request(message())])
        assert isinstance(answer, BatchTooLarge)
