# SPDX-License-Identifier: Apache-2.0
"""Clients of a cluster: they send messages that were not sent before, and record the answers.

A writer sends its batch again, to the present leader, until it hears that it is replicated; it is stored once. Readers
read from every member, all the time.
"""

import asyncio
import random
from typing import TYPE_CHECKING

from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats.records.host import Host
from libs.requests.errors import ServiceError
from libs.segments.errors import StoreFull
from services.commitlog.engine.write.marks import DURABILITY_REPLICATED
from services.commitlog.errors import AppendsRefused, StoreSealed, WriterContentDiffers, WriterSequenceGap
from tests.crash.cluster.node import Node
from tests.crash.sim.process import Killed
from tests.support import commitlog as support

if TYPE_CHECKING:
    from tests.crash.cluster.world import ClusterWorld

BORN_HOST = Host.parse("10.1.2.3:4567").to_bytes()
TIMEOUT_S = 6.0
TOPICS = ("orders", "payments")
WRITER_PAUSES_S = (0.01, 0.2, 1.5)
READER_PAUSES_S = (0.02, 0.5, 2.0)


def whom(world: "ClusterWorld", chance: random.Random) -> Node | None:
    """Return a node that thinks that it leads, perhaps not the only such node, and now and then any other node."""
    leading = [node for node in world.nodes if node.leads]
    if leading and chance.random() < 0.9:
        return chance.choice(leading)
    return chance.choice([node for node in world.nodes if node.process is not None] or [None])


def make_bodies(world: "ClusterWorld", chance: random.Random) -> list[bytes]:
    """Bodies that were never sent before."""
    bodies = []
    for _ in range(chance.choice((1, 1, 2, 5))):
        number = world.counts.get("sent messages", 0)
        world.count("sent messages")
        bodies.append(b"<%08d>" % number + chance.randbytes(chance.choice((0, 20, 700))))
    world.promises.sent.update(bodies)
    return bodies


async def send(
    world: "ClusterWorld", node: Node, bodies: list[bytes], topic: str, durability: int, writer: pb.Writer | None = None
) -> bool:
    """Append a batch. Returns whether it is known to be replicated. Otherwise its outcome is unknown."""
    log, process = node.log, node.process
    if log is None or process is None:
        return False
    messages = (support.message(body, topic) for body in bodies)
    request = support.request(*messages, durability=durability, writer=writer)

    async def append() -> bool:
        epoch = log.epochs.number
        batch = await log.pipeline.append(request, BORN_HOST)
        reached = await support.durability_of(log, batch)
        offsets: list[int] = []
        told: list[bytes] = []
        if batch.is_repeated:
            world.count("batches repeated")
        else:
            offsets, told = memoryview(batch.physical_offsets).cast("q").tolist(), bodies
        world.promises.stored(epoch, told, offsets)
        if reached != DURABILITY_REPLICATED:
            world.rules.serves(node.name, epoch, world.coordinator.there.record)
            return False
        world.rules.confirms(node, batch.end_physical_offset, world.members)
        world.promises.acknowledged(node.name, epoch, told, offsets)
        return True

    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await world.call(process, append())
    except (WriterContentDiffers, WriterSequenceGap) as error:
        if node is world.leader:  # not a node that does not know yet that another node was elected
            raise AssertionError(f"writer {writer!r} at {node.name}: {error!r}\n{world.told()}") from error
        return False
    except (Killed, StoreSealed, AppendsRefused, StoreFull, ServiceError, OSError):
        return False


async def send_once(world: "ClusterWorld", chance: random.Random, durability: int) -> None:
    """Send a batch, once."""
    node = whom(world, chance)
    if node is not None and await send(world, node, make_bodies(world, chance), chance.choice(TOPICS), durability):
        world.count("replicated batches")


async def write(world: "ClusterWorld", name: str, chance: random.Random) -> None:
    """Send batches in turn, each until it is replicated."""
    written = world.promises.written.setdefault(name, [])
    sequence = 0
    while not world.is_over:
        bodies, topic = make_bodies(world, chance), chance.choice(TOPICS)
        while not world.is_over:
            await asyncio.sleep(chance.choice(WRITER_PAUSES_S))
            node, writer = whom(world, chance), pb.Writer(id=name, sequence=sequence)
            if node is not None and await send(world, node, bodies, topic, DURABILITY_REPLICATED, writer):
                world.count("batches of writers")
                written += bodies
                sequence += 1
                break


async def read(world: "ClusterWorld", node: Node, chance: random.Random) -> None:
    """Read the records that a node shows, again and again."""
    while not world.is_over:
        await asyncio.sleep(chance.choice(READER_PAUSES_S))
        world.look(node)
