# SPDX-License-Identifier: Apache-2.0
"""The network between members: connections whose two ways are late, and may be cut apart from each other.

Invariants: steps of a way arrive in order, or stay on their way for as long as it is cut; a process that is cut off
notices by silence alone; a process that dies ends its connections, which the other side hears as soon as it hears
anything; a connection that breaks loses the whole steps that were under way. At most a few steps are under way, as with
gRPC's flow control.
"""

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from libs.requests.errors import DependencyUnavailable, ServiceError
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import NOBODY, Ack, Chunk, Handshake, Hello, LeaderAt, Step
from services.commitlog.engine.replicate.stream import ReplicaStream
from services.commitlog.errors import HistoryDiffers, NotLeader, StaleEpoch, StreamIdle
from tests.crash.sim.process import check_alive

if TYPE_CHECKING:
    from tests.crash.cluster.node import Node
    from tests.crash.cluster.world import ClusterWorld

UNDER_WAY_COUNT_MAX = 4
CONNECT_TIMEOUT_S = 1.0
DELAYS_S = (0.0002, 0.0002, 0.0002, 0.001, 0.01)
SLOW_S = 0.4
TOLD = (HistoryDiffers, NotLeader, StaleEpoch)
"""Errors that a follower gets unchanged."""


class Pipe:
    """A way of a connection."""

    def __init__(self, world: "ClusterWorld", source: str, target: str) -> None:
        self._world = world
        self.way = (source, target)
        self._due_s = 0.0
        self._under_way: deque[object] = deque()
        self._arrived: deque[object] = deque()
        self._moved = asyncio.Event()
        self.on_end: Callable[[], None] = lambda: None
        """Called when the end arrives."""

    async def room(self) -> None:
        """Wait until more may be sent."""
        while len(self._under_way) + len(self._arrived) >= UNDER_WAY_COUNT_MAX:
            self._moved.clear()
            await self._moved.wait()

    def send(self, item: object) -> None:
        """Send a step, or an error, which is the end."""
        self._under_way.append(item)
        chance = self._world.loop.chance
        delay_s = SLOW_S if self.way in self._world.slow_ways else chance.choice(DELAYS_S)
        self._due_s = max(self._due_s, self._world.loop.time() + delay_s)
        self._world.loop.call_at(self._due_s, self._arrive, context=contextvars.Context())

    def fall(self) -> None:
        """Lose the steps that are under way, and give the receiver an error."""
        self._under_way.clear()
        self._arrived.append(DependencyUnavailable("peer", "the connection broke"))
        self._moved.set()
        self.on_end()

    def _arrive(self) -> None:
        if not self._under_way:
            return
        if self.way in self._world.cut_ways:
            self._world.held.append((self.way, self._arrive))
            return
        item = self._under_way.popleft()
        self._arrived.append(item)
        self._moved.set()
        if isinstance(item, BaseException):
            self.on_end()

    async def receive(self, timeout_s: float) -> Any:
        """Return the next step, or raise the end. Raises TimeoutError after silence."""
        async with asyncio.timeout(timeout_s):
            while not self._arrived:
                self._moved.clear()
                await self._moved.wait()
        item = self._arrived[0]
        if isinstance(item, BaseException):
            raise item
        self._arrived.popleft()
        self._moved.set()
        return item


class Link:
    """The link from a node to the log at an address. See `LeaderAt`."""

    def __init__(self, world: "ClusterWorld", node: "Node", target: str) -> None:
        self._world = world
        self._node = node
        self._leader = world.at(target)

    @contextlib.asynccontextmanager
    async def open(self, hello: Hello) -> AsyncIterator["Connection"]:
        """See `LeaderAt`."""
        ways = ((self._node.name, self._leader.name), (self._leader.name, self._node.name))
        await asyncio.sleep(self._world.loop.chance.choice(DELAYS_S))
        check_alive()  # a task that was about to end anyway may not have noticed that it was ended
        if any(way in self._world.cut_ways for way in ways):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise DependencyUnavailable("leader", "it does not answer")
        requests, responses = (Pipe(self._world, *way) for way in ways)
        self._leader.accept(hello, requests, responses)
        self._world.connections[requests, responses] = None
        try:
            yield Connection(self._node, self._leader, requests, responses)
        finally:
            self._world.connections.pop((requests, responses), None)
            requests.send(StreamIdle(timeout_ms=0))


class Connection:
    """See `Replication`."""

    def __init__(self, node: "Node", leader: "Node", requests: Pipe, responses: Pipe) -> None:
        self._node = node
        self._leader = leader
        self._requests = requests
        self._responses = responses
        self._silence_s = node.silence_s
        self._handshake: Handshake | None = None

    async def __aiter__(self) -> AsyncIterator[Step]:
        while True:
            try:
                step = await self._responses.receive(self._silence_s)
                check_alive()
                if isinstance(step, Handshake):
                    self._agree(step)
                yield step
            except TimeoutError:
                raise DependencyUnavailable("leader", "silent for long") from None
            except TOLD:
                raise
            except ServiceError as error:
                raise DependencyUnavailable("leader", f"{type(error).__name__}: {error}") from error

    def _agree(self, handshake: Handshake) -> None:
        self._handshake, leader = handshake, self._leader.log
        if leader is not None and leader.epochs.epochs == list(handshake.epochs) and leader.follower is None:
            self._node.world.rules.agrees(self._leader, self._node, handshake)

    async def acknowledge(self, ack: Ack) -> None:
        """See `Replication`."""
        await self._requests.room()
        check_alive()
        log = self._node.log
        assert log is not None
        assert self._handshake is not None
        self._node.world.rules.acknowledges(self._node, log, ack, self._handshake)
        self._requests.send(ack)


async def serve(log: OpenLog, hello: Hello, requests: Pipe, responses: Pipe, silence_s: float) -> None:
    """Serve a stream like ReplicationServicer."""
    stream = log.replicas.follow(hello)
    hearing = asyncio.create_task(_hear(stream, requests, silence_s))
    try:
        async with contextlib.aclosing(log.replicas.steps(stream)) as steps:
            async for step in steps:
                await responses.room()
                responses.send(replace(step, data=bytes(step.data)) if isinstance(step, Chunk) else step)
    finally:
        hearing.cancel()


async def _hear(stream: ReplicaStream, requests: Pipe, silence_s: float) -> None:
    try:
        while True:
            stream.acknowledge(await requests.receive(silence_s))
    except TimeoutError:
        stream.end(StreamIdle(timeout_ms=int(silence_s * 1000)))
    except Exception as error:  # noqa: BLE001 - becomes the end of the stream
        stream.end(error)


def leader_at(link: Link, target: str, **doors: Any) -> LeaderAt:
    """Return how a log follows the log at an address."""
    return replace(NOBODY, target=target, open=link.open, **doors)
