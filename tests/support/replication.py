# SPDX-License-Identifier: Apache-2.0
"""A log that follows another log in the same process, over a connection that a test may cut."""

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
    """Connects followers to a leader. The leader may change, and may be None."""

    def __init__(self, leader: OpenLog | None = None) -> None:
        self.leader = leader
        self.hellos: list[Hello] = []
        self.cuts: list[Cut] = []
        """The cuts that followers requested."""
        self.moves: list[str] = []
        self.chunk_size_bytes = 1 << 20
        """The size of the parts in which a chunk arrives."""
        self.change: Callable[[Step], Step] = lambda step: step
        """Changes a step on its way to the follower."""
        self.say: Callable[[Hello], Hello] = lambda hello: hello
        """Changes a hello on its way to the leader."""
        self.can_acknowledge = asyncio.Event()
        """Acknowledgements wait for this."""
        self.can_acknowledge.set()

    def current(self) -> OpenLog | None:
        """Return the leader that is reached now."""
        return self.leader

    def at(self) -> LeaderAt:
        """Return the leader as a follower gets it."""
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
    """The follower's end of a stream over a Wire. See `Replication`."""

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
    """Wait until the follower shows all records of the leader, while the log does not grow."""
    await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
    await follower.marks.flushed.soon(follower.marks.wrote.value)
    await eventually(lambda: follower.marks.visible.value == leader.marks.visible.value)
    await eventually(lambda: follower.epochs.number == leader.epochs.number)  # it may begin without a byte
    await eventually(lambda: not follower.gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN))  # they come beside the log


def same_segments(one: Machine, other: Machine) -> bool:
    """Whether two stores have the same segments, byte by byte.

    Exceptions are the oldest segments that either store alone has kept, and a last segment that is still empty.
    """
    mine, theirs = (
        {path.name: data for path, data in machine.files().items() if path.parent.name == "commitlog" and any(data)}
        for machine in (one, other)
    )
    common = mine.keys() & theirs.keys()
    is_tail = all(name < min(common, default="9") for name in mine.keys() ^ theirs.keys())
    return is_tail and all(mine[name] == theirs[name] for name in common)
