# SPDX-License-Identifier: Apache-2.0
"""A gateway with a whole store behind it, inside this process, and calls as RocketMQ's clients make them."""

import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from reput.delivery.v1 import group_service_pb2, group_service_pb2_grpc

from libs.runtime.process import running
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.commitlog.bootstrap import Service as CommitLog
from services.commitlog.bootstrap import Settings as CommitLogSettings
from services.delivery.bootstrap import Service as Delivery
from services.delivery.bootstrap import Settings as DeliverySettings
from services.delivery.errors import NotOwner
from services.gateway.bootstrap import Service, Settings
from services.gateway.config import GatewayConfig
from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2 as wire
from services.indexer.bootstrap import Service as Indexer
from services.indexer.bootstrap import Settings as IndexerSettings
from services.indexer.config import IndexerConfig
from tests.support.commitlog import make_config
from tests.support.patience import LIMIT_S
from tests.support.served_indexer import SMALL

TELEMETRY = TelemetryConfig(metrics_port=0)
SEGMENT_SIZE_BYTES = 32 << 20
"""Large enough for the largest bodies."""
PLACE = wire.Endpoints(scheme=wire.ADDRESS_SCHEME_DOMAIN_NAME, addresses=[wire.Address(host="mq.example", port=443)])
"""The address that the caller gives as the called address, such as the name of a load balancer."""


class Caller:
    """Calls with a client's metadata."""

    def __init__(self, channel: grpc.aio.Channel, client: str = "c1", **metadata: str) -> None:
        self.channel = channel
        self.metadata = [("x-mq-client-id", client)] if client else []
        self.metadata += [(name.replace("_", "-"), value) for name, value in metadata.items()]
        self._numbers = itertools.count()

    async def call(self, method: str, request: Any) -> Any:
        """Make a unary call."""
        kind = getattr(wire, f"{method}Response")
        stub = self.channel.unary_unary(f"/{SERVED_AS}/{method}", type(request).SerializeToString, kind.FromString)
        return await stub(request, metadata=self.metadata, timeout=LIMIT_S)

    def telemetry(self) -> Any:
        """Open a stream."""
        stub = self.channel.stream_stream(
            f"/{SERVED_AS}/Telemetry",
            wire.TelemetryRequest.SerializeToString,
            wire.TelemetryResponse.FromString,
        )
        return stub(metadata=self.metadata, timeout=LIMIT_S)

    async def settings(self, settings: wire.Settings) -> wire.TelemetryResponse:
        """Send the caller's settings, and return the answer."""
        stream = self.telemetry()
        await stream.write(wire.TelemetryRequest(settings=settings))
        answer: wire.TelemetryResponse = await stream.read()
        await stream.done_writing()
        return answer

    def receiving(self, request: wire.ReceiveMessageRequest, timeout_s: float = LIMIT_S) -> Any:
        """Begin to receive, and return the call."""
        stub = self.channel.unary_stream(
            f"/{SERVED_AS}/ReceiveMessage", type(request).SerializeToString, wire.ReceiveMessageResponse.FromString
        )
        return stub(request, metadata=self.metadata, timeout=timeout_s)

    async def receive(self, topic: str, group: str = "g", *, wait_s: int = 20, **fields: Any) -> list[wire.Message]:
        """Receive, expect success, and return the messages."""
        request = receive_request(topic, group, wait_s=wait_s, **fields)
        parts = [part async for part in self.receiving(request)]
        messages = [part.message for part in parts if part.HasField("message")]
        assert parts[0].status.code == (wire.CODE_OK if messages else wire.CODE_MESSAGE_NOT_FOUND), parts[0]
        return messages

    async def send(self, topic: str, *messages: wire.Message) -> wire.SendMessageResponse:
        """Send messages. Without messages, send a message with a body."""
        sent = messages or (self.message(topic),)
        answer: wire.SendMessageResponse = await self.call("SendMessage", wire.SendMessageRequest(messages=sent))
        return answer

    def message(self, topic: str, body: bytes = b"body", **system: Any) -> wire.Message:
        """Make a message as libraries do."""
        fields = {
            "message_id": f"01{next(self._numbers):032X}",
            "body_encoding": wire.ENCODING_IDENTITY,
            "message_type": wire.MESSAGE_TYPE_FIFO if "message_group" in system else wire.MESSAGE_TYPE_NORMAL,
            "born_host": "host",
            **system,
        }
        return wire.Message(
            topic=wire.Resource(name=topic), body=body, system_properties=wire.SystemProperties(**fields)
        )

    async def ack(self, topic: str, *handles: str, group: str = "g") -> wire.AckMessageResponse:
        """Settle messages."""
        entries = [wire.AckMessageEntry(message_id="i", receipt_handle=handle) for handle in handles]
        request = wire.AckMessageRequest(group=named(group), topic=named(topic), entries=entries)
        answer: wire.AckMessageResponse = await self.call("AckMessage", request)
        return answer

    async def change(self, handle: str, milliseconds: int) -> wire.ChangeInvisibleDurationResponse:
        """Set the time for which a message belongs to its consumer."""
        duration = Duration(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 10**6)
        request = wire.ChangeInvisibleDurationRequest(receipt_handle=handle, invisible_duration=duration)
        answer: wire.ChangeInvisibleDurationResponse = await self.call("ChangeInvisibleDuration", request)
        return answer


def named(name: str) -> wire.Resource:
    """A name."""
    return wire.Resource(name=name)


def receive_request(topic: str, group: str = "g", *, wait_s: int = 20, **fields: Any) -> wire.ReceiveMessageRequest:
    """Return a request like a simple consumer's."""
    return wire.ReceiveMessageRequest(
        **{
            "group": named(group),
            "message_queue": wire.MessageQueue(topic=named(topic)),
            "batch_size": 32,
            "invisible_duration": Duration(seconds=3_600),
            "long_polling_timeout": Duration(seconds=wait_s),
            **fields,
        }
    )


@dataclass(frozen=True)
class Served:
    """A gateway, with a channel to it and to the Delivery behind it."""

    gateway: Service
    channel: grpc.aio.Channel
    delivery: grpc.aio.Channel

    def caller(self, client: str = "c1", **metadata: str) -> Caller:
        """A client."""
        return Caller(self.channel, client, **metadata)

    async def policy(self, group: str, **fields: Any) -> None:
        """Give a group a policy."""
        policy = group_service_pb2.GroupPolicy(**fields)
        groups: Any = group_service_pb2_grpc.GroupServiceStub(self.delivery)
        await groups.SetGroup(group_service_pb2.SetGroupRequest(group=group, policy=policy))


@contextlib.asynccontextmanager
async def store(directory: Path) -> AsyncIterator[tuple[str, str]]:
    """CommitLog, Indexer and Delivery. Yields the addresses of the CommitLog and of Delivery."""
    server = ServerConfig(port=0, drain_timeout_ms=2_000)
    engine = make_config(data_dir=directory / "log", segment_size_bytes=SEGMENT_SIZE_BYTES)
    log_settings = CommitLogSettings(engine=engine, server=server, telemetry=TELEMETRY)
    async with running(CommitLog, log_settings) as log:
        commitlog = PeerConfig(target=f"127.0.0.1:{log.server.port}")
        index_settings = IndexerSettings(
            engine=IndexerConfig(data_dir=directory / "index", **SMALL),
            commitlog=commitlog,
            server=server,
            telemetry=TELEMETRY,
        )
        async with running(Indexer, index_settings) as index:
            indexer = PeerConfig(target=f"127.0.0.1:{index.server.port}")
            settings = DeliverySettings(commitlog=commitlog, indexer=indexer, server=server, telemetry=TELEMETRY)
            async with running(Delivery, settings) as delivery:
                while not delivery.owner.is_owner:  # its first call lets it begin
                    with contextlib.suppress(NotOwner):
                        await delivery.owner.engine()
                yield commitlog.target, f"127.0.0.1:{delivery.server.port}"


@contextlib.asynccontextmanager
async def gateway(
    commitlog: str, delivery: str, *, rights_file: Path | None = None, **config: Any
) -> AsyncIterator[Served]:
    """A gateway of a store, which creates topics by default."""
    settings = Settings(
        engine=GatewayConfig(**{"auto_create_topics": True, **config}),
        commitlog=PeerConfig(target=commitlog),
        delivery=PeerConfig(target=delivery),
        server=ServerConfig(port=0, drain_timeout_ms=2_000, rights_file=rights_file),
        telemetry=TELEMETRY,
    )
    async with (
        running(Service, settings) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.server.port}") as channel,
        grpc.aio.insecure_channel(delivery.split(",", maxsplit=1)[0]) as behind,
    ):
        yield Served(service, channel, behind)
