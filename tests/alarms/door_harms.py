# SPDX-License-Identifier: Apache-2.0
"""Harm to the gateway's door, with the cures of its runbook."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from reput.commitlog.v1 import log_service_pb2
from reput_client import ReputError, connect

from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.alarms import site
from tests.alarms.drill import Cure
from tests.alarms.load import TOPIC, repeated
from tests.alarms.site import Site
from tests.attack import http2
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import Caller

SMALL_BYTES = 1 << 20
"""The least room for answers that a gateway may have: two callers that do not read use it up."""
STREAM_RECORDS = "/reput.commitlog.v1.LogService/StreamRecords"


@contextmanager
def opened(folder: Path) -> Iterator[Site]:
    """Start a store with a gateway whose room for answers is small."""
    with site.stopping(site.store_with_door(folder, "--answer-inflight-bytes-max", str(SMALL_BYTES))) as made:
        yield made


def lose_delivery(made: Site) -> Cure:
    """Kill Delivery while a client asks for groups through the door. The cure starts Delivery."""
    client = made.loads.enter_context(connect(made.services["gateway"].target))

    def ask() -> None:
        with contextlib.suppress(ReputError):
            list(client.share_groups.list())

    made.services["delivery"].end()
    made.loads.enter_context(repeated(ask, 0.5))
    return made.services["delivery"].start


@contextmanager
def opened_shards(folder: Path) -> Iterator[Site]:
    """Start two shards with a gateway."""
    with site.stopping(site.shards(folder)) as made:
        yield made


def lose_shard(made: Site) -> Cure:
    """Kill the log of a shard while messages come to the gateway. The cure starts the log."""
    channel = made.loads.enter_context(grpc.insecure_channel(made.services["gateway"].target))
    method, kind = f"/{SERVED_AS}/SendMessage", wire.SendMessageResponse
    send = channel.unary_unary(method, wire.SendMessageRequest.SerializeToString, kind.FromString)
    metadata = (("x-mq-client-id", "drill"),)
    message = Caller(channel).message(TOPIC)  # type: ignore[arg-type]

    def ask() -> None:
        with contextlib.suppress(grpc.RpcError):
            send(wire.SendMessageRequest(messages=[message]), metadata=metadata, timeout=LIMIT_S)

    ask()
    made.services["commitlog-b"].end()
    made.loads.enter_context(repeated(ask, 0.2))
    return made.services["commitlog-b"].start


def read_nothing(made: Site) -> Cure:
    """Ask for the log through the door again and again, and read nothing. The cure ends these callers."""
    door = made.services["gateway"].target
    with connect(door) as client, client.producer() as producer:
        for sent in [producer.send(TOPIC, bytes(256 << 10)) for _ in range(16)]:
            sent.result(LIMIT_S)
    request = log_service_pb2.StreamRecordsRequest(view="RECORD_VIEW_RAW").SerializeToString()
    readers = made.loads.enter_context(contextlib.ExitStack())

    def ask() -> None:
        connection = http2.Connection(door, window_bytes=0)
        readers.callback(connection.close)
        connection.call(STREAM_RECORDS, request)

    asking = made.loads.enter_context(contextlib.ExitStack())
    asking.enter_context(repeated(ask, 1))

    def cure() -> None:
        asking.close()
        readers.close()

    return cure
