# SPDX-License-Identifier: Apache-2.0
"""Chunks that several followers share: made once, with the right bytes, and in bounded memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.formats.epoch import Epoch
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate import shared_chunks
from services.commitlog.engine.replicate import stream as leader_side
from services.commitlog.engine.replicate.shared_chunks import SharedChunks
from services.commitlog.engine.replicate.steps import Ack, Beat, Chunk, Hello
from services.commitlog.engine.replicate.stream import ReplicaStream
from tests.support.commitlog import Machine, append, message, synced

WINDOW_BYTES = 1 << 20


class Reader:
    """A follower that reads chunks one at a time, from the end that the log has at first."""

    def __init__(self, leader: OpenLog, name: str, **changes: Any) -> None:
        self.leader = leader
        hello = Hello(
            name, name * 32, leader.epochs.history_id, tuple(leader.epochs.epochs), leader.marks.committed.value,
            leader.marks.flushed.value, leader.chain.segment_size_bytes,
            **{"needs_queue_offsets": False, "window_bytes": 4 * WINDOW_BYTES} | changes,
        )  # fmt: skip
        self.stream: ReplicaStream = leader.replicas.follow(hello)
        self.steps: AsyncIterator[Any] = leader.replicas.steps(self.stream)

    async def next(self) -> Chunk:
        """Return the next chunk."""
        async for step in self.steps:
            if isinstance(step, Chunk):
                return step
        raise AssertionError("it ended")

    def take(self, chunk: Chunk) -> None:
        """Acknowledge a chunk as received."""
        self.stream.acknowledge(Ack(1, chunk.end_physical_offset, 0))


def stored(machine: Machine, chunk: Chunk) -> bool:
    """Whether a chunk has the bytes of the log."""
    stored = machine.segment_bytes()[chunk.start_physical_offset : chunk.end_physical_offset]
    return bytes(chunk.data) == bytes(stored) == chunk.response[-len(stored) :]


async def test_a_chunk_is_made_once() -> None:
    """A follower that comes later stays at the same ends, although the log is longer by then."""
    machine = Machine(segment_size_bytes=4 << 20)
    async with machine.running() as leader:
        one, two, three = (Reader(leader, name) for name in "bcd")
        await append(leader, message(bytes(shared_chunks.SHARED_SIZE_BYTES_MIN)))
        first = await one.next()
        await append(leader, message(b"small"))
        second = await one.next()
        await append(leader, message(b"more"))
        assert (await two.next()).response is first.response
        joined = await two.next()  # a small chunk is no end to stay at
        assert joined.start_physical_offset == second.start_physical_offset
        assert joined.end_physical_offset == leader.marks.committed.value > second.end_physical_offset
        assert (await three.next()).response is first.response
        assert (await three.next()).response is joined.response
        assert all(stored(machine, chunk) for chunk in (first, second, joined))


async def test_a_window_that_is_smaller_than_a_chunk() -> None:
    """A follower without room for a shared chunk gets a part of it."""
    machine = Machine(segment_size_bytes=8 << 20)
    async with machine.running() as leader:
        one, two = Reader(leader, "b"), Reader(leader, "c", window_bytes=WINDOW_BYTES)
        await append(leader, *(message(bytes(500_000)) for _ in range(4)))
        whole, part = await one.next(), await two.next()
        assert len(part.data) == WINDOW_BYTES < len(whole.data)
        two.take(part)
        rest = await two.next()
        assert bytes(part.data) + bytes(rest.data) == bytes(whole.data)[: rest.end_physical_offset]


async def test_only_a_member_that_should_is_hurried() -> None:
    """A chunk that asks for a sync is not sent to a follower that may sync later, and the other way round."""
    machine = Machine(segment_size_bytes=4 << 20)
    async with machine.running() as leader:
        one, two, three = (Reader(leader, name) for name in "bcd")
        assert leader.in_sync is not None
        await append(leader, message(bytes(100_000)))
        found = []
        for reader in (one, two, three):
            leader.in_sync.set.hurried = frozenset({two.stream.member})
            found.append(await reader.next())
        relaxed, hurried, late = found
        assert relaxed.sync_to_physical_offset == late.sync_to_physical_offset == 0
        assert hurried.sync_to_physical_offset == hurried.end_physical_offset == relaxed.end_physical_offset
        assert all(stored(machine, chunk) for chunk in (relaxed, hurried, late))


async def test_nothing_older_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that knows a later visible end than a kept chunk has gets a chunk of its own, with the same end."""
    machine = Machine(segment_size_bytes=4 << 20, flush_mode="sync", flush_interval_ms=3_600_000)
    async with machine.running() as leader:
        one, two = Reader(leader, "b"), Reader(leader, "c")
        await append(leader, message(bytes(100_000)), durability=1)
        first = await one.next()
        await synced(leader)
        monkeypatch.setattr(leader_side, "BEAT_S", 0.0)
        while not isinstance(await anext(two.steps), Beat):
            pass
        monkeypatch.undo()
        own = await two.next()
        assert first.confirmed_physical_offset < own.confirmed_physical_offset == leader.marks.visible.value
        assert own.response is not first.response
        assert (own.start_physical_offset, own.data) == (first.start_physical_offset, first.data)


def test_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest chunks are dropped, and a single follower needs none."""
    monkeypatch.setattr(shared_chunks, "SHARED_BYTES_MAX", 100)
    shared = SharedChunks()
    chunks = [Chunk(at, bytes(40), Epoch(1, 0), 0) for at in range(0, 160, 40)]
    shared.keep(chunks[0])
    assert shared.find(0) is None
    shared.note_followers(2)
    for chunk in chunks:
        shared.keep(chunk)
    assert [shared.find(chunk.start_physical_offset) for chunk in chunks] == [None, None, *chunks[2:]]
    again = Chunk(120, bytes(10), Epoch(1, 0), 0)
    shared.keep(again)
    assert (shared.find(120), shared.size_bytes) == (again, 50)
    shared.keep(Chunk(160, bytes(101), Epoch(1, 0), 0))
    assert shared.size_bytes == 0
    shared.keep(again)
    shared.note_followers(1)
    assert (shared.find(120), shared.size_bytes) == (None, 0)
