# SPDX-License-Identifier: Apache-2.0
"""Catching up: old data is sent at the pace of the setting, and new data never waits."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate import chunks
from services.commitlog.engine.replicate.catch_up import CatchUpPace
from services.commitlog.engine.replicate.steps import Beat, Chunk, Hello, Step
from services.commitlog.engine.replicate.stream import ReplicaStream
from tests.support.commitlog import Machine, append, message
from tests.support.patience import LIMIT_S

PIECE_BYTES = 1_000


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, PIECE_BYTES)), min_size=1, max_size=50),
)
def test_the_pace(bytes_per_s: int, pieces: list[tuple[float, int]]) -> None:
    """A reader gets at most the pace plus a piece over any interval, and waits no longer than needed."""
    pace, now_s, taken = CatchUpPace(bytes_per_s), 100.0, [(100.0, 0)]
    for idle_s, size_bytes in pieces:
        now_s += idle_s
        wait_s = pace.wait_s(now_s)
        now_s += wait_s
        assert pace.wait_s(now_s) <= 1e-9
        pace.take(size_bytes, now_s)
        taken.append((now_s, taken[-1][1] + size_bytes))
        assert pace.wait_s(now_s) == pytest.approx(size_bytes / bytes_per_s, abs=1e-6)
    for at, (start_s, before) in enumerate(taken):
        for end_s, after in taken[at + 1 :]:
            assert after - before <= (end_s - start_s) * bytes_per_s + 2 * PIECE_BYTES + 1e-3


def test_no_pace() -> None:
    """Without a limit a reader never waits."""
    pace = CatchUpPace(0)
    pace.take(1 << 40, 1.0)
    assert pace.wait_s(1.0) == 0


def follow(leader: OpenLog, name: str, *, window_bytes: int = 64 << 20) -> ReplicaStream:
    """A stream to a follower with an empty log."""
    size_bytes = leader.chain.segment_size_bytes
    return leader.replicas.follow(
        Hello(name, name * 32, "", (), 0, 0, size_bytes, needs_queue_offsets=False, window_bytes=window_bytes)
    )


async def steps_until(leader: OpenLog, stream: ReplicaStream, end: int) -> list[Step]:
    """The steps until all bytes up to this offset are sent."""
    found: list[Step] = []
    async for step in leader.replicas.steps(stream):
        found.append(step)
        if isinstance(step, Chunk) and step.end_physical_offset >= end:
            return found
    raise AssertionError("it ended")


async def test_what_is_old_comes_at_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats continue while old data waits, and the leader reports the catch-up."""
    monkeypatch.setattr(chunks, "COLD_CHUNK_SIZE_BYTES_MAX", 20_000)
    async with Machine(catch_up_bytes_per_s=30_000).running() as leader:
        for _ in range(5):
            await append(leader, message(bytes(10_000)))
        end, loop = leader.marks.committed.value, asyncio.get_running_loop()
        stream = follow(leader, "b")
        assert stream.look().is_catching_up
        start_s = loop.time()
        steps = await steps_until(leader, stream, end)
        assert loop.time() - start_s >= (end - 20_000) / 30_000 - 0.01
        assert any(isinstance(step, Beat) for step in steps)
        pieces = [step for step in steps if isinstance(step, Chunk)]
        assert max(len(one.data) for one in pieces) == 20_000
        assert (stream.replica.start_physical_offset, stream.look().is_catching_up) == (0, False)


async def test_what_is_new_does_not_wait() -> None:
    """New data does not wait, although the pace is tiny and another follower has used it up."""
    async with Machine(catch_up_bytes_per_s=1).running() as leader:
        await append(leader, message(bytes(1_000)))
        old = follow(leader, "b")
        await steps_until(leader, old, leader.marks.committed.value)
        new = leader.replicas.follow(
            Hello(
                "c", "c" * 32, leader.epochs.history_id, tuple(leader.epochs.epochs), leader.marks.committed.value, 0,
                leader.chain.segment_size_bytes, needs_queue_offsets=False, window_bytes=1 << 20,
            )
        )  # fmt: skip
        await append(leader, message(bytes(1_000)))
        assert not new.look().is_catching_up
        async with asyncio.timeout(LIMIT_S):
            await steps_until(leader, new, leader.marks.committed.value)
