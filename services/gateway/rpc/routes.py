# SPDX-License-Identifier: Apache-2.0
"""Routes: the queues of a topic as clients see them, all at the address that the client has called.

So a client finds the gateway behind load balancers and mapped ports, and keeps to the port that it has chosen. Messages
of a topic come from any of its queues, so a consumer always receives from the whole topic of a broker. Each shard is a
broker for clients; a single store is the broker BROKER.
"""

from reput.commitlog.v1.topic_service_pb2 import Topic

from services.gateway.engine.names import is_of_group
from services.gateway.errors import Refused
from services.gateway.rpc.caller import Caller
from services.gateway.rpc.store.ports import Log
from services.gateway.rpc.wire import messaging_pb2 as wire

ANY_QUEUE = -1
KINDS = (
    wire.MESSAGE_TYPE_NORMAL,
    wire.MESSAGE_TYPE_FIFO,
    wire.MESSAGE_TYPE_DELAY,
    wire.MESSAGE_TYPE_TRANSACTION,
)
"""Types of messages that are served. Libraries refuse other types themselves."""


class Routes:
    """The routes of topics. Raises Refused and PeerError."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def queues(self, request: wire.QueryRouteRequest, caller: Caller) -> list[wire.MessageQueue]:
        """Return all queues of a topic."""
        _check(request.endpoints)
        topic, queue_ids, sealed = await self._log.queues(caller.topic(request.topic))
        return [
            _queue(request.topic, topic, queue_id, _broker(name, request.endpoints), is_sealed=queue_id in sealed)
            for name, ids in queue_ids.items()
            for queue_id in ids
        ]

    async def assignments(self, request: wire.QueryAssignmentRequest, caller: Caller) -> list[wire.Assignment]:
        """Return the queues of a push consumer: for each broker a queue that stands for the whole topic there."""
        _check(request.endpoints)
        caller.group(request.group)
        topic, queue_ids, _ = await self._log.queues(caller.topic(request.topic))
        return [
            wire.Assignment(message_queue=_queue(request.topic, topic, ANY_QUEUE, _broker(name, request.endpoints)))
            for name in queue_ids
        ]


def _check(endpoints: wire.Endpoints) -> None:
    if not endpoints.addresses:
        raise Refused("BAD_REQUEST", "endpoints must say where the client has called")


def _broker(name: str, endpoints: wire.Endpoints) -> wire.Broker:
    return wire.Broker(name=name, id=0, endpoints=endpoints)


def _queue(
    name: wire.Resource, topic: Topic, queue_id: int, broker: wire.Broker, *, is_sealed: bool = False
) -> wire.MessageQueue:
    can_send = (
        topic.is_writable
        and not is_sealed
        and not is_of_group(topic.name)
        and (topic.HasField("share") or queue_id < topic.write_queue_count)
    )
    can_receive = topic.is_readable  # consumers get messages of any queue
    permission = wire.PERMISSION_NONE
    if can_send:
        permission = wire.PERMISSION_READ_WRITE if can_receive else wire.PERMISSION_WRITE
    elif can_receive:
        permission = wire.PERMISSION_READ
    return wire.MessageQueue(topic=name, id=queue_id, permission=permission, broker=broker, accept_message_types=KINDS)
