# SPDX-License-Identifier: Apache-2.0
"""Services of a cluster: each operation that they answer as done is there in the end, under any faults.

Here are the gateway's sends, with and without ids that are known once, and the service of topics; `delivering.py` has
the calls of Delivery. Clients and servicers are the real code, without sockets. Each call asks for something new, and
the answers are recorded.
"""

import asyncio
import random
from typing import TYPE_CHECKING

from reput.commitlog.v1 import append_service_pb2 as pb
from reput.commitlog.v1 import topic_service_pb2, topic_service_pb2_grpc

from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from services.gateway.rpc.store.log_client import LogClient as GatewayLog
from tests.crash.cluster.clients import whom
from tests.crash.cluster.deliveries import ask
from tests.crash.cluster.node import Node
from tests.support.calls import connection_to, servicers_of

if TYPE_CHECKING:
    from tests.crash.cluster.world import ClusterWorld

PAUSES_S = (0.05, 0.3, 1.5)


def connect(node: Node) -> Connection:
    """Return a connection to the log of a node, as it is now. It does not answer once that log is closed."""
    log, config = node.log, node.world.config_of(node.name)
    servicers = {} if log is None else servicers_of(log, config)
    return connection_to(lambda: servicers if node.log is log else {})


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
        leading = LeaderClient("commitlog", [connect(node)])
        gateway = GatewayLog(leading, node.clock, creates_topics=True, is_once=is_once)
        if (await ask(world, node.process, lambda g=gateway, m=message: g.append([m]))).is_done:  # type: ignore[misc]
            world.promises.done.add(mark)
            world.count("produced")


async def administer(world: "ClusterWorld", chance: random.Random) -> None:
    """Make, change and delete topics. A topic whose last change was not answered may be in either state."""
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
            if (await ask(world, node.process, lambda t=topics, r=create: t.CreateTopic(r))).is_done:  # type: ignore[misc]
                known[name] = 3
        elif chance.random() < 0.5:
            queue_count, known[name] = (known[name] or 0) + 1, None
            update = topic_service_pb2.UpdateTopicRequest(name=name, write_queue_count=queue_count)
            if (await ask(world, node.process, lambda t=topics, r=update: t.UpdateTopic(r))).is_done:  # type: ignore[misc]
                known[name] = queue_count
        else:
            known[name] = None
            delete = topic_service_pb2.DeleteTopicRequest(name=name)
            if (await ask(world, node.process, lambda t=topics, r=delete: t.DeleteTopic(r))).is_done:  # type: ignore[misc]
                known[name] = 0
            count += 1
        world.count("changes of topics answered", known[name] is not None)
