# SPDX-License-Identifier: Apache-2.0
"""A log that follows another one in the same process, over a wire that a test may cut."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace

from libs.requests.errors import DependencyUnavailable
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import NOBODY, Ack, Chunk, Hello, LeaderAt, Step
from services.commitlog.engine.replicate.stream import ReplicaStream
from services.commitlog.engine.start.cut import Cut
from services.commitlog.engine.write.gate import Reason
from tests.support.commitlog import Machine
from tests.support.patience import eventually


class Wire:
    """Connects followers to a leader, which may be another one later, or none."""

    def __init__(self, leader: OpenLog | None = None) -> None:
        self.leader = leader
        self.hellos: list[Hello] = []
        self.cuts: list[Cut] = []
        """What followers asked for."""
        self.moves: list[str] = []
        self.chunk_size_bytes = 1 << 20
        """How much of a chunk comes at a time."""
        self.change: Callable[[Step], Step] = lambda step: step
        """What becomes of a step on its way."""
        self.say: Callable[[Hello], Hello] = lambda hello: hello
        """What becomes of a hello."""
        self.can_acknowledge = asyncio.Event()
        """Acknowledgements wait for this."""
        self.can_acknowledge.set()

    def current(self) -> OpenLog | None:
        """The leader that is reached now."""
        return self.leader

    def at(self) -> LeaderAt:
        """What a follower is given."""
        return replace(NOBODY, target="leader:7101", open=self.open, cut=self.cuts.append, move=self.moves.append)

    @contextlib.asynccontextmanager
    async def open(self, hello: Hello) -> AsyncIterator["Stream"]:
        """See `LeaderAt`."""
        leader = self.current()
        if leader is None:
            raise DependencyUnavailable("leader", "the wire is cut")
        hello = self.say(hello)
        self.hellos.append(hello)
        stream = Stream(self, leader, leader.replicas.follow(hello))
        try:
            yield stream
        finally:
            await stream.steps.aclose()


class Stream:
    """See `Replication`."""

    def __init__(self, wire: Wire, leader: OpenLog, stream: ReplicaStream) -> None:
        self._wire = wire
        self._leader = leader
        self._stream = stream
        self.steps = leader.replicas.steps(stream)

    async def __aiter__(self) -> AsyncGenerator[Step, None]:
        async for step in self.steps:
            if self._wire.current() is not self._leader:
                break
            for piece in self._pieces(self._wire.change(step)):
                yield piece
        raise DependencyUnavailable("leader", "the wire is cut")

    def _pieces(self, step: Step) -> list[Step]:
        if not isinstance(step, Chunk):
            return [step]
        size, start = self._wire.chunk_size_bytes, step.start_physical_offset
        return [
            replace(step, start_physical_offset=start + at, data=step.data[at : at + size])
            for at in range(0, len(step.data), size)
        ]

    async def acknowledge(self, ack: Ack) -> None:
        await self._wire.can_acknowledge.wait()
        self._stream.acknowledge(ack)


async def caught_up(follower: OpenLog, leader: OpenLog) -> None:
    """Wait until the follower shows all that the leader shows, of a log that stands still."""
    await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
    await follower.marks.flushed.soon(follower.marks.wrote.value)
    await eventually(lambda: follower.marks.visible.value == leader.marks.visible.value)
    await eventually(lambda: follower.epochs.number == leader.epochs.number)  # it may begin without a byte
    await eventually(lambda: not follower.gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN))  # they come beside the log


def same_segments(one: Machine, other: Machine) -> bool:
    """Whether two stores have the same segments, byte by byte.

    But for the oldest ones that only one has kept, and a last one that was begun and has nothing yet.
    """
    mine, theirs = (
        {path.name: data for path, data in machine.files().items() if path.parent.name == "commitlog" and any(data)}
        for machine in (one, other)
    )
    common = mine.keys() & theirs.keys()
    is_tail = all(name < min(common, default="9") for name in mine.keys() ^ theirs.keys())
    return is_tail and all(mine[name] == theirs[name] for name in common)
