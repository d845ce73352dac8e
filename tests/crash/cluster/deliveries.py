# SPDX-License-Identifier: Apache-2.0
"""Deliveries: a Delivery and a gateway beside the log of each member, in a process of their own.

Engine, servicers and clients are the real code; calls go without sockets. A Delivery's call of a log is carried out by
the process of that log, and has no answer when that process dies. A Delivery outlives its log, as on a machine.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from reput.delivery.v1 import (
    delay_service_pb2_grpc,
    delivery_service_pb2_grpc,
    group_service_pb2_grpc,
    transaction_service_pb2_grpc,
)

from libs.formats.records.delay_level import DELAY_LEVEL_MAX
from libs.requests.errors import ServiceError
from libs.runtime.peer.calls import error_info
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from libs.segments.errors import StoreFull
from services.commitlog.engine.open_log import OpenLog
from services.delivery.config import DeliveryConfig
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.rpc.dead_letter_servicer import DeadLetterServicer
from services.delivery.rpc.delay_servicer import DelayServicer
from services.delivery.rpc.delivery_servicer import DeliveryServicer
from services.delivery.rpc.error_table import ERROR_TABLE as DELIVERY_ERRORS
from services.delivery.rpc.group_servicer import GroupServicer
from services.delivery.rpc.log.half_client import HalfClient
from services.delivery.rpc.log.index_client import IndexClient
from services.delivery.rpc.log.level_client import LevelClient
from services.delivery.rpc.log.log_client import LogClient
from services.delivery.rpc.log.timer_client import TimerClient
from services.delivery.rpc.shard_client import ShardClient
from services.delivery.rpc.transaction_servicer import TransactionServicer
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.producers import Producers
from services.gateway.rpc.access_keys import AccessKeys
from services.gateway.rpc.messaging_servicer import MessagingServicer
from services.gateway.rpc.store.delivery_client import DeliveryClient
from services.gateway.rpc.store.log_client import LogClient as GatewayLog
from services.indexer.rpc.error_table import ERROR_TABLE as INDEXER_ERRORS
from tests.crash.cluster.indexes import LogIndex, Shown
from tests.crash.sim.process import Killed, Process
from tests.support.calls import Context, connection_to, failed, log_servicer_of, servicers_of

if TYPE_CHECKING:
    from tests.crash.cluster.node import Node
    from tests.crash.cluster.world import ClusterWorld

TIMEOUT_S = 40.0
"""Longer than Delivery asks the log for an entry."""
BODY_SIZE_BYTES_MAX = 1 << 16


class Answer(NamedTuple):
    """The outcome of a call: unknown if it is not done and there is no reason."""

    is_done: bool
    value: Any = None
    reason: str = ""


async def ask(world: "ClusterWorld", process: Process | None, call: Callable[[], Awaitable[Any]]) -> Answer:
    """Make a call in a process."""
    if process is None:
        return Answer(is_done=False)

    async def made() -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            return await call()

    try:
        return Answer(is_done=True, value=await world.call(process, made()))
    except grpc.aio.AioRpcError as error:
        return Answer(is_done=False, reason=error_info(error).reason)
    except (Killed, ServiceError, StoreFull, OSError):
        return Answer(is_done=False)


class There:
    """A servicer in another process: a call whose process dies before the answer fails as a broken connection."""

    def __init__(self, world: "ClusterWorld", process: Process, servicer: Any) -> None:
        self._world, self._process, self._servicer = world, process, servicer

    def __getattr__(self, method: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            try:
                return await self._world.call(self._process, getattr(self._servicer, method)(request, context))
            except Killed:
                raise failed(grpc.StatusCode.UNAVAILABLE, "the connection broke") from None

        return call


class Delivery:
    """A Delivery and a gateway beside the log of a member, in a process of their own. `kill` it in the end."""

    def __init__(self, world: "ClusterWorld", node: "Node", index: LogIndex) -> None:
        self._world, self._node = world, node
        self._known: tuple[OpenLog, dict[str, Any]] | None = None
        self.process = Process(f"delivery of {node.name}", node.disk)
        with self.process.running():
            to_index = connection_to(lambda: self._living(index.servicers), table=INDEXER_ERRORS)
            self._make(connection_to(lambda: self._living(self._servicers())), to_index)
            self.owner.start()

    def _make(self, to_log: Connection, to_index: Connection) -> None:
        clock, log, index = self._node.clock, LogClient(to_log), IndexClient(to_index)
        halves, timers = HalfClient(to_index, index), TimerClient(to_log, to_index, index)
        rooms = {"log": log, "index": index, "halves": halves, "timers": timers, "levels": LevelClient(index)}
        rooms |= {"shards": ShardClient({})}
        make = partial(GroupEngine, **rooms, clock=clock, config=DeliveryConfig())
        self.owner = JournalOwner(log, index, make, clock, level_count=DELAY_LEVEL_MAX)
        self.letters = DeadLetterServicer(self.owner)
        own = {
            "DeliveryService": DeliveryServicer(self.owner, receive_count_max=DeliveryConfig().receive_count_max),
            "GroupService": GroupServicer(self.owner, log, index),
            "DelayService": DelayServicer(self.owner),
            "TransactionService": TransactionServicer(self.owner),
        }
        to_delivery = connection_to(
            lambda: {f"reput.delivery.v1.{name}": servicer for name, servicer in own.items()},
            TIMEOUT_S,
            DELIVERY_ERRORS,
        )
        self.deliveries: Any = delivery_service_pb2_grpc.DeliveryServiceStub(to_delivery.channel)
        self.groups: Any = group_service_pb2_grpc.GroupServiceStub(to_delivery.channel)
        self.delays: Any = delay_service_pb2_grpc.DelayServiceStub(to_delivery.channel)
        self.transactions: Any = transaction_service_pb2_grpc.TransactionServiceStub(to_delivery.channel)
        self.gateway_log = GatewayLog(LeaderClient("commitlog", [to_log]), clock, creates_topics=True)
        nothing: Any = None
        self.gateway = MessagingServicer(
            self.gateway_log,
            DeliveryClient(LeaderClient("delivery", [to_delivery])),
            nothing,
            nothing,
            nothing,
            nothing,
            Producers(),
            Bodies(size_bytes_max=BODY_SIZE_BYTES_MAX),
            AccessKeys(None),
            clock=clock,
            body_size_bytes_max=BODY_SIZE_BYTES_MAX,
        )

    def now_ms(self) -> int:
        """Return the time of its machine."""
        return self._node.clock.now_ms()

    def _living(self, servicers: dict[str, Any]) -> dict[str, Any]:
        """Let a dead process call nothing while it unwinds."""
        if self.process.is_dead:
            raise Killed
        return servicers

    def _servicers(self) -> dict[str, Any]:
        """Return the servicers of the log now, none while there is no log."""
        process, log, commit_log = self._node.process, self._node.log, self._node.commit_log
        if process is None or log is None or commit_log is None:
            return {}
        if self._known is None or self._known[0] is not log:
            servicers = servicers_of(log, self._world.config_of(self._node.name))
            servicers["reput.commitlog.v1.LogService"] = log_servicer_of(log, commit_log)
            there = {name: There(self._world, process, servicer) for name, servicer in servicers.items()}
            self._known = log, there
        return self._known[1]

    async def replay(self, request: Any, told: list[int]) -> None:
        """Replay dead letters, and record how many the answers report."""
        async for answer in self.letters.ReplayDeadLetters(request, Context()):
            told[0] = sum(topic.replayed_count for topic in answer.topics)


class Deliveries:
    """The running Deliveries, by the names of their members. `shown` has the records that all logs showed."""

    def __init__(self, world: "ClusterWorld") -> None:
        self.shown = Shown(world.levels.hear)
        self._world = world
        self._indexes: dict[str, LogIndex] = {}
        self._running: dict[str, Delivery] = {}

    def at(self, node: "Node") -> Delivery:
        """Return the Delivery of a member, which is started if none runs."""
        if node.name not in self._running:
            index = self._indexes.setdefault(node.name, LogIndex(node, self.shown))
            self._running[node.name] = Delivery(self._world, node, index)
        return self._running[node.name]

    def level_positions(self) -> list[tuple[str, int, int]]:
        """Return the committed positions of delay levels: member, id of the level's queue, position."""
        return [(name, *each) for name, index in self._indexes.items() for each in index.level_positions().items()]

    def kill(self, delivery: Delivery) -> None:
        """End the process of a Delivery at once."""
        delivery.process.die()
        self._running = {name: one for name, one in self._running.items() if one is not delivery}

    async def stop(self, delivery: Delivery) -> None:
        """End it in order."""
        await ask(self._world, delivery.process, delivery.owner.stop)
        self.kill(delivery)

    def kill_all(self) -> None:
        """End all at once."""
        for delivery in list(self._running.values()):
            self.kill(delivery)
