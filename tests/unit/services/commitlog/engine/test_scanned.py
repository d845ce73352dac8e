# SPDX-License-Identifier: Apache-2.0
"""The scan of a follower serves its tails: they send the same as a scan of the log, wherever they stand."""

import asyncio
from dataclasses import replace

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from services.commitlog.engine.replicate import applier
from services.commitlog.engine.replicate.steps import Chunk, Step
from services.commitlog.engine.write import scanned
from services.commitlog.engine.write.scanned import ScannedRecords
from tests.support.commitlog import BORN_HOST, append, fill, message, records, request
from tests.support.patience import eventually
from tests.support.replication import caught_up, same_segments
from tests.support.tails import Tail, two


@pytest.fixture(params=[0, applier.JOINED_BYTES_MAX], ids=["completed", "joined"])
def _chunks_are(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record before a chunk is completed first, or the chunk is joined with it."""
    monkeypatch.setattr(applier, "JOINED_BYTES_MAX", request.param)


@pytest.mark.parametrize("chunk_size_bytes", [70, 1_000, 1 << 20])
@pytest.mark.usefixtures("_chunks_are")
async def test_same_bytes_and_state(chunk_size_bytes: int) -> None:
    """A record that arrives in two chunks is written once, and batches of writers are written as a whole."""
    async with two() as (leader, follower, wire, one, other):
        wire.chunk_size_bytes = chunk_size_bytes
        ends, seen = {leader.marks.wrote.value}, set()
        for sequence in range(9):
            writer = pb.Writer(id="w", sequence=sequence)
            bodies = (message(b"x" * 90 * sequence) for _ in range(5))
            ends.add((await leader.pipeline.append(request(*bodies, writer=writer), BORN_HOST)).end_physical_offset)
        while follower.marks.wrote.value < leader.marks.wrote.value:
            seen.add(follower.marks.wrote.value)
            await asyncio.sleep(0)
        assert seen <= ends
        await fill(leader, 3)
        await caught_up(follower, leader)
        assert follower.state.writers.batches() == leader.state.writers.batches()
        assert sorted(follower.state.table.frozen_counters()) == sorted(leader.state.table.frozen_counters())
        assert same_segments(one, other)


@pytest.mark.parametrize("position", [0, 1, 4, 20, 60, 95, 150])
@pytest.mark.usefixtures("_chunks_are")
async def test_a_changed_byte_in_any_part_of_a_record_ends_the_stream(position: int) -> None:
    """A record of two chunks with a changed byte is never written, and the records before it are."""
    async with two() as (leader, follower, wire, one, other):
        end = leader.marks.wrote.value

        def changed(step: Step) -> Step:
            if not isinstance(step, Chunk):
                return step
            at, data = end + position - step.start_physical_offset, bytearray(step.data)
            data[at] ^= 0x41
            return replace(step, data=bytes(data))

        wire.change, wire.chunk_size_bytes = changed, 61
        await append(leader, message(b"two" * 100))
        await eventually(lambda: len(wire.hellos) > 2)
        assert follower.marks.wrote.value == end
        wire.change = lambda step: step
        await caught_up(follower, leader)
        assert same_segments(one, other)


async def test_a_tail_that_stands_elsewhere_scans_up_to_the_next_piece() -> None:
    """A tail that begins within a piece scans the rest of it, and takes the pieces behind it."""
    async with two() as (leader, follower, _, _, _):
        first = Tail(follower)
        await eventually(lambda: first.at == follower.marks.visible.value)
        await append(leader, message(), message())
        await caught_up(follower, leader)
        middle = records(leader)[2].physical_offset
        steps = follower.followers.tail(start_physical_offset=middle, record_count_max=9).steps()
        step = await anext(steps)
        assert (step.end_physical_offset, step.response) == (leader.marks.wrote.value, b"")
        await append(leader, message())
        await caught_up(follower, leader)
        assert (await anext(steps)).response
        await steps.aclose()
        await first.end()
        assert first.shared_count == 2  # and a scan of the first message


async def test_small_pieces_are_not_kept() -> None:
    """Records that a tail would collect are scanned by the tail, in a single step."""
    async with two(dispatch_size_bytes_min=100_000) as (leader, follower, _, _, _):
        tail = Tail(follower)
        for _ in range(5):
            await append(leader, message())
        await caught_up(follower, leader)
        await tail.end()
        assert (len(tail.rows), tail.shared_count) == (6, 0)


async def test_without_tails_nothing_is_kept() -> None:
    """Pieces are kept only for tails that may reach them, and are dropped with the last tail."""
    async with two() as (leader, follower, _, _, _):
        kept: ScannedRecords = follower.followers.scanned
        assert kept.held_bytes == 0
        tail = Tail(follower)
        await tail.end()
        tail = Tail(follower)
        await eventually(lambda: tail.at == follower.marks.visible.value)
        batch = await leader.pipeline.append(request(message()), BORN_HOST)
        await eventually(lambda: follower.marks.wrote.value == batch.end_physical_offset)
        assert kept.held_bytes > 0  # not on the disk, and so not visible
        await tail.leave()
        assert kept.held_bytes == 0


async def test_pieces_of_a_tail_that_lags_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest pieces are dropped when there are too many bytes. The tail scans those records."""
    monkeypatch.setattr(scanned, "SCANNED_BYTES_MAX", 2_000)
    async with two() as (leader, follower, _, _, _):
        tail, most = Tail(follower), 0
        await asyncio.sleep(0)
        for _ in range(20):
            batch = await leader.pipeline.append(request(message()), BORN_HOST)
            await eventually(lambda end=batch.end_physical_offset: follower.marks.wrote.value == end)
            most = max(most, follower.followers.scanned.held_bytes)
        assert 1_000 < most <= 2_000
        await caught_up(follower, leader)
        await tail.end()
        assert len(tail.rows) == 21
        assert 0 < tail.shared_count < 10
