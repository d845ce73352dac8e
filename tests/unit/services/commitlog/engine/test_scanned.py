# SPDX-License-Identifier: Apache-2.0
"""The scan of a follower serves its tails: they send the same as a scan of the log, wherever they stand."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats.records import dispatch_columns
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from services.commitlog.engine.follow.dispatch import TailStep
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate import applier
from services.commitlog.engine.replicate.steps import Chunk, Step
from services.commitlog.engine.write import scanned
from services.commitlog.engine.write.scanned import ScannedRecords
from tests.support.commitlog import BORN_HOST, Machine, append, fill, message, records, request, synced
from tests.support.patience import eventually
from tests.support.replication import Wire, caught_up, same_segments

DELAYS, DELAYS_MS = "2s 3m 1d", (2_000, 180_000, 86_400_000)


@contextlib.asynccontextmanager
async def two(**changes: Any) -> AsyncIterator[tuple[OpenLog, OpenLog, Wire, Machine, Machine]]:
    """A leader and a follower whose tails want each scanned piece, of any size. Both have a message."""
    changes = {"dispatch_size_bytes_min": 0, "message_delay_level": DELAYS, **changes}
    one, other = Machine(**changes), Machine(**changes)
    leader = await one.start()
    wire = Wire(leader)
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b", reconnect_ms_max=100)
    await append(leader, message())
    await caught_up(follower, leader)
    try:
        yield leader, follower, wire, one, other
    finally:
        await other.stop(follower)
        await one.stop(leader)
    assert one.failures == other.failures == []


@pytest.fixture(params=[0, applier.JOINED_BYTES_MAX], ids=["completed", "joined"])
def _chunks_are(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record before a chunk is completed first, or the chunk is joined with it."""
    monkeypatch.setattr(applier, "JOINED_BYTES_MAX", request.param)


def rows(batch: DispatchBatch) -> Iterator[tuple[Any, ...]]:
    """The records of a batch with all their values, whatever the numbers of their queues."""
    key_at = 0
    for at in range(len(batch.physical_offsets)):
        queue, key_end = int(batch.queue_indexes[at]), key_at + int(batch.key_counts[at])
        yield (
            int(batch.physical_offsets[at]),
            int(batch.record_sizes[at]),
            None if queue < 0 else (*batch.queues[queue], queue in batch.batch_queues),
            int(batch.queue_offsets[at]),
            int(batch.tags_codes[at]),
            int(batch.store_times_ms[at]),
            batch.key_hashes[key_at:key_end].tolist(),
        )
        key_at = key_end


class Tail:
    """A tail that reads in the background, and all that it has sent."""

    def __init__(self, log: OpenLog, *, count_max: int = 1000) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.at = 0
        self.shared_count = 0
        """Number of steps that were not scanned by the tail."""
        self._log = log
        tail = log.followers.tail(start_physical_offset=0, record_count_max=count_max)
        self._reading = asyncio.create_task(self._read(tail.steps()))

    async def _read(self, steps: AsyncGenerator[TailStep, None]) -> None:
        async with contextlib.aclosing(steps):
            async for step in steps:
                start, end = step.start_physical_offset, step.end_physical_offset
                assert start == self.at
                if step.response:
                    self.shared_count += 1
                    assert step.response == scanned_anew(self._log, start, end)
                if step.response or step.columns is not None:
                    batch = dispatch_columns.decode(step.response or dispatch_columns.encode(step.columns, start, end))
                    assert isinstance(batch, DispatchBatch)
                    assert (batch.start_physical_offset, batch.end_physical_offset) == (start, end)
                    self.rows += rows(batch)
                self.at = end

    async def end(self) -> None:
        """Wait until it has all visible records, and end it."""
        await eventually(lambda: self._reading.done() or self.at == self._log.marks.visible.value)
        await self.leave()

    async def leave(self) -> None:
        """End it where it is."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


def scanned_anew(log: OpenLog, start: int, end: int) -> bytes:
    """The response of a scan of the log's own bytes."""
    segment = log.chain.find(start)
    base, columns = segment.base_physical_offset, ScanColumns(10_000, 40_000, DELAYS_MS)
    scan_cy.scan(segment.buffer, start - base, end - base, base, True, columns)
    assert base + columns.end_position == end
    return dispatch_columns.encode(columns, start, end)


def any_message(choose: random.Random) -> pb.AppendMessage:
    """A message of any kind: with keys, tags, a delay, of a transaction, to one of several queues."""
    properties = {"KEYS": " ".join(str(choose.randrange(100)) for _ in range(choose.randint(1, 3)))}
    if choose.random() < 0.3:
        properties["TAGS"] = choose.choice(("red", "blue"))
    if choose.random() < 0.2:
        properties["DELAY"] = str(choose.randint(1, 3))
    return message(
        choose.randbytes(choose.choice((0, 10, 300, 2_000))),
        topic=choose.choice(("orders", "payments")),
        queue_id=choose.randrange(3),
        sys_flag=choose.choice((0, 0, 0, 4)),
        properties=properties,
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("_chunks_are")
async def test_tails_of_a_follower_send_the_same_as_tails_of_the_leader(seed: int) -> None:
    """Records of any kind, in chunks of any size, beside visible ends of any place, come once and with equal values."""
    choose, sequences = random.Random(seed), itertools.count()
    async with two() as (leader, follower, wire, one, other):
        wire.chunk_size_bytes = choose.choice((150, 900, 5_000, 1 << 20))
        ours, theirs, few = Tail(follower), Tail(leader), Tail(follower, count_max=3)
        for _ in range(choose.randint(20, 60)):
            writer = pb.Writer(id="w", sequence=next(sequences)) if choose.random() < 0.3 else None
            batch = [any_message(choose) for _ in range(choose.randint(1, 12))]
            await leader.pipeline.append(request(*batch, writer=writer), BORN_HOST)
            if choose.random() < 0.3:
                await synced(choose.choice((leader, follower)))
            if choose.random() < 0.5:
                await asyncio.sleep(0)
        await caught_up(follower, leader)
        for tail in (ours, theirs, few):
            await tail.end()
        assert ours.rows == theirs.rows == few.rows
        assert len(ours.rows) == len(records(leader))
        assert ours.shared_count > 0 == theirs.shared_count
        assert same_segments(one, other)
        assert follower.followers.scanned.held_bytes == 0


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
