# SPDX-License-Identifier: Apache-2.0
"""Services of a cluster: what they answer as done is there in the end, whatever happens.

Delivery's journal, the gateway's sends and the service of topics run on the real clients and servicers of each member,
by calls within the process. They are asked for what nobody asked before, and take note of what they were told.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from reput.commitlog.v1 import append_service_pb2 as pb
from reput.commitlog.v1 import topic_service_pb2, topic_service_pb2_grpc

from libs.formats.records.delivery_record import Place, Settled
from libs.requests.errors import ServiceError
from libs.runtime.rpc.peer import Connection
from libs.segments.errors import StoreFull
from services.delivery.engine.journal import Journal
from services.delivery.engine.times.store_time import StoreTime
from services.delivery.rpc.log.log_client import LogClient as DeliveryLog
from services.gateway.rpc.store.leading import Leading
from services.gateway.rpc.store.log_client import LogClient as GatewayLog
from tests.crash.cluster.clients import whom
from tests.crash.cluster.node import Node
from tests.crash.sim.process import Killed
from tests.support.calls import connection_to, servicers_of

if TYPE_CHECKING:
    from tests.crash.cluster.world import ClusterWorld

TIMEOUT_S = 40.0
PAUSES_S = (0.05, 0.3, 1.5)
EVENT_COUNT_MAX = 20
"""Of one journal, before it is begun anew."""


def connect(node: Node) -> Connection:
    """Return a connection to the log of a node, as it is now. Nobody listens once that is closed."""
    log, config = node.log, node.world.config_of(node.name)
    servicers = {} if log is None else servicers_of(log, config)
    return connection_to(lambda: servicers if node.log is log else {})


async def ask(world: "ClusterWorld", node: Node, call: Callable[[], Awaitable[Any]]) -> bool:
    """Make a call in the process of a node. Returns whether it was answered; nobody knows what became of it if not."""
    process = node.process
    if process is None:
        return False

    async def made() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await call()

    try:
        await world.call(process, made())
    except (Killed, ServiceError, StoreFull, OSError, grpc.aio.AioRpcError):
        return False
    return True


async def settle(world: "ClusterWorld", chance: random.Random) -> None:
    """Begin a journal at the one that leads, as Delivery does, and write acknowledgements into it, one by one."""
    count = 0
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        node = whom(world, chance)
        if node is None or node.log is None:
            continue
        journal = Journal(DeliveryLog(connect(node)), chance.randbytes(16).hex(), StoreTime(node.clock))
        is_good = await ask(world, node, lambda journal=journal: journal.begin(_settled(b"began")))  # type: ignore[misc]
        for _ in range(EVENT_COUNT_MAX):
            if not is_good or world.is_over:
                break
            await asyncio.sleep(chance.choice(PAUSES_S))
            count += 1
            mark = b"<settled %06d>" % count
            is_good = await ask(world, node, lambda j=journal, m=mark: _written(j, m))  # type: ignore[misc]
            if is_good:
                world.promises.done.add(mark)
                world.count("settled")


async def _written(journal: Journal, mark: bytes) -> None:
    await journal.write([_settled(mark)], is_safe=True)


def _settled(mark: bytes) -> Settled:
    return Settled(Place("group", mark.decode(), 0), (1,))


async def produce(world: "ClusterWorld", chance: random.Random) -> None:
    """Send messages through the gateway, each once, some of them known by their ids."""
    count = 0
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        node, is_once = whom(world, chance), chance.random() < 0.5
        if node is None or node.log is None:
            continue
        count += 1
        mark = b"<produced %06d>" % count
        message = pb.AppendMessage(topic="orders", body=mark, properties={"UNIQ_KEY": mark.decode()})
        leading = Leading("commitlog", [connect(node)])
        gateway = GatewayLog(leading, node.clock, creates_topics=True, is_once=is_once)
        if await ask(world, node, lambda g=gateway, m=message: g.append([m])):  # type: ignore[misc]
            world.promises.done.add(mark)
            world.count("produced")


async def administer(world: "ClusterWorld", chance: random.Random) -> None:
    """Make topics, change them and delete them; one whose last change was not answered may be in either state."""
    count = 0
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        node = whom(world, chance)
        if node is None or node.log is None:
            continue
        topics, name = topic_service_pb2_grpc.TopicServiceStub(connect(node).channel), f"made-{count}"
        known = world.promises.topics
        if name not in known or known[name] is None:
            count += name in known
            name = f"made-{count}"
            known[name] = None
            create = topic_service_pb2.CreateTopicRequest(name=name, write_queue_count=3)
            if await ask(world, node, lambda t=topics, r=create: t.CreateTopic(r)):  # type: ignore[misc]
                known[name] = 3
        elif chance.random() < 0.5:
            queue_count, known[name] = (known[name] or 0) + 1, None
            update = topic_service_pb2.UpdateTopicRequest(name=name, write_queue_count=queue_count)
            if await ask(world, node, lambda t=topics, r=update: t.UpdateTopic(r)):  # type: ignore[misc]
                known[name] = queue_count
        else:
            known[name] = None
            delete = topic_service_pb2.DeleteTopicRequest(name=name)
            if await ask(world, node, lambda t=topics, r=delete: t.DeleteTopic(r)):  # type: ignore[misc]
                known[name] = 0
            count += 1
        world.count("changes of topics answered", known[name] is not None)
