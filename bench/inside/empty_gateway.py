# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.inside.empty_gateway`: the gateway without a store behind it.

Prints the address at which it listens.

All of the gateway's own work is done for a SendMessage; messages that it would append are counted as stored. The rest
of the time with a real gateway is that of the services behind it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import uvloop
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.commitlog.v1.topic_service_pb2 import Topic

from libs.machine.clock import SystemClock
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import ServerConfig
from libs.runtime.watch import malloc
from libs.runtime.watch.telemetry import Telemetry as Reports
from services.gateway.bootstrap import LIMITS
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.producers import Producers
from services.gateway.engine.renewals import Renewals
from services.gateway.rpc.access_keys import AccessKeys
from services.gateway.rpc.caller import WorkCanceller
from services.gateway.rpc.consumer_methods import ConsumerMethods
from services.gateway.rpc.messaging_servicer import SERVED_AS, MessagingServicer
from services.gateway.rpc.routes import Routes
from services.gateway.rpc.store.ports import BROKER, Sent, TopicQueues
from services.gateway.rpc.telemetry import Telemetry
from services.gateway.rpc.wire import messaging_pb2 as wire

QUEUE_COUNT = 4
BODY_SIZE_BYTES_MAX = 4 << 20


class NoLog:
    """Answers as a log does that has every topic, and stores nothing."""

    creates_topics = False

    async def send(self, messages: Sequence[AppendMessage]) -> Sequence[Sent]:
        """See Log."""
        return [Sent("", offset) for offset in range(len(messages))]

    async def queues(self, name: str) -> TopicQueues:
        """See Log."""
        topic = Topic(
            name=name, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT, is_readable=True, is_writable=True
        )
        return TopicQueues(topic, {BROKER: range(QUEUE_COUNT)})


async def serve() -> None:
    """Answer until the process is ended."""
    log, delivery, canceller, clock = NoLog(), cast("Any", None), WorkCanceller(), SystemClock()
    renewals, producers = Renewals(delivery, clock, count_max=1), Producers()
    bodies = Bodies(size_bytes_max=BODY_SIZE_BYTES_MAX)
    servicer = MessagingServicer(
        log,
        delivery,
        Routes(log),
        ConsumerMethods(delivery, renewals, bodies, canceller, clock),
        Telemetry(
            delivery,
            renewals,
            producers,
            bodies,
            canceller,
            body_size_bytes_max=BODY_SIZE_BYTES_MAX,
            stream_count_max=1_000,
        ),
        renewals,
        producers,
        bodies,
        AccessKeys(None),
        clock=clock,
        body_size_bytes_max=BODY_SIZE_BYTES_MAX,
    )
    server = GrpcServer(
        ServerConfig(port=0),
        errors={},
        telemetry=Reports.off("gateway"),
        request_size_bytes_max=BODY_SIZE_BYTES_MAX * 2,
        limits=LIMITS,
    )
    server.add_service(wire.DESCRIPTOR.services_by_name["MessagingService"], servicer, served_as=SERVED_AS)
    await server.start()
    server.admit()
    print(f"127.0.0.1:{server.port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    malloc.tune()
    uvloop.run(serve())
