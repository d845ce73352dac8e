# SPDX-License-Identifier: Apache-2.0
"""Every role calls every method of every proto at the three services: a call that the table forbids is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from reput.indexer.v1 import index_service_pb2, index_service_pb2_grpc

from libs.runtime.process import running
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from libs.runtime.trust.roles import ROLES, Role
from services.commitlog.bootstrap import Service as CommitLog
from services.commitlog.bootstrap import Settings as CommitLogSettings
from services.delivery.bootstrap import Service as Delivery
from services.delivery.bootstrap import Settings as DeliverySettings
from services.indexer.bootstrap import Service as Indexer
from services.indexer.bootstrap import Settings as IndexerSettings
from services.indexer.config import IndexerConfig
from services.janitor.bootstrap import Service as Janitor
from services.janitor.bootstrap import Settings as JanitorSettings
from services.janitor.config import JanitorConfig
from tests.support.commitlog import make_config
from tests.support.methods import path_of, proto_methods
from tests.support.patience import LIMIT_S
from tests.support.served_indexer import SMALL
from tests.support.service_process import Refusal

ROLE_NAMES = ("client", "service", "operator")
REFUSALS = ("UNAUTHENTICATED", "NOT_PERMITTED")
TELEMETRY = TelemetryConfig(metrics_port=0)


@asynccontextmanager
async def store(directory: Path, *, asks_clients: bool) -> AsyncIterator[dict[str, grpc.aio.Channel]]:
    """All services with a token for each role, and a channel to each, by the middle of its package's name."""
    for name in ROLE_NAMES:
        (directory / name).write_text(f"{name}-token\n")
    server = ServerConfig(
        port=0,
        token_file=directory / "client" if asks_clients else None,
        service_token_file=directory / "service",
        operator_token_file=directory / "operator",
    )
    log_settings = CommitLogSettings(engine=make_config(data_dir=directory / "log"), server=server, telemetry=TELEMETRY)
    async with running(CommitLog, log_settings) as log:
        commitlog = PeerConfig(target=f"127.0.0.1:{log.server.port}")
        index_settings = IndexerSettings(
            engine=IndexerConfig(data_dir=directory / "index", **SMALL),
            commitlog=commitlog,
            server=server,
            telemetry=TELEMETRY,
        )
        async with running(Indexer, index_settings) as index:
            janitor_settings = JanitorSettings(
                engine=JanitorConfig(data_dir=directory / "janitor"),
                commitlog=commitlog,
                indexer=PeerConfig(target=f"127.0.0.1:{index.server.port}"),
                server=server,
                telemetry=TELEMETRY,
            )
            delivery_settings = DeliverySettings(
                commitlog=commitlog,
                indexer=PeerConfig(target=f"127.0.0.1:{index.server.port}"),
                server=server,
                telemetry=TELEMETRY,
            )
            async with (
                running(Janitor, janitor_settings) as janitor,
                running(Delivery, delivery_settings) as delivery,
                grpc.aio.insecure_channel(f"127.0.0.1:{log.server.port}") as log_channel,
                grpc.aio.insecure_channel(f"127.0.0.1:{index.server.port}") as index_channel,
                grpc.aio.insecure_channel(f"127.0.0.1:{janitor.server.port}") as janitor_channel,
                grpc.aio.insecure_channel(f"127.0.0.1:{delivery.server.port}") as delivery_channel,
            ):
                yield {
                    "commitlog": log_channel,
                    "indexer": index_channel,
                    "janitor": janitor_channel,
                    "delivery": delivery_channel,
                    "common": log_channel,
                }


async def test_a_service_with_another_token_says_so(tmp_path: Path) -> None:
    """An Indexer with a token that the log does not know follows nothing, and its status has the reason."""
    for name in ("mine", "other"):
        (tmp_path / name).write_text(name)
    log_settings = CommitLogSettings(
        engine=make_config(data_dir=tmp_path / "log"),
        server=ServerConfig(port=0, service_token_file=tmp_path / "mine"),
        telemetry=TELEMETRY,
    )
    async with running(CommitLog, log_settings) as log:
        index_settings = IndexerSettings(
            engine=IndexerConfig(data_dir=tmp_path / "index", **SMALL),
            commitlog=PeerConfig(target=f"127.0.0.1:{log.server.port}"),
            server=ServerConfig(port=0, service_token_file=tmp_path / "other"),
            telemetry=TELEMETRY,
        )
        async with (
            running(Indexer, index_settings) as index,
            grpc.aio.insecure_channel(f"127.0.0.1:{index.server.port}") as channel,
            asyncio.timeout(LIMIT_S),
        ):
            stub = index_service_pb2_grpc.IndexServiceStub(channel)
            while True:
                status = await stub.GetStatus(index_service_pb2.GetStatusRequest())
                if status.last_error:
                    break
                await asyncio.sleep(0.02)
            assert "PERMISSION_DENIED: reput.commitlog.v1.LogService/Dispatch needs the token" in status.last_error
            assert status.state == index_service_pb2.REPUT_STATE_CONNECTING


async def refusal(channel: grpc.aio.Channel, method: MethodDescriptor, metadata: Any) -> Refusal | None:
    """Return the refusal of an empty request for the caller's role, or None if it is not refused for the role."""
    path = path_of(method)
    try:
        if method.client_streaming:
            kind = channel.stream_stream if method.server_streaming else channel.stream_unary
            call = kind(path)(iter([b""]), metadata=metadata, timeout=10)
        else:
            kind = channel.unary_stream if method.server_streaming else channel.unary_unary
            call = kind(path)(b"", metadata=metadata, timeout=10)
        if method.server_streaming:
            await call.read()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # it is not served yet; the rule is there before it
            return None
        found = Refusal(error)
        return found if found.reason in REFUSALS else None
    return None


def expected(method: MethodDescriptor, role: str, *, asks_clients: bool) -> str | None:
    """Return the expected reason for the caller."""
    needed = ROLES[path_of(method)]
    if role in ("nobody", "stranger"):
        if asks_clients:
            return "UNAUTHENTICATED"
        return None if needed is Role.CLIENT else "NOT_PERMITTED"
    return None if needed is Role.CLIENT or needed.name == role.upper() else "NOT_PERMITTED"


@pytest.mark.parametrize("asks_clients", [True, False], ids=["token for clients", "clients without token"])
async def test_each_method_asks_for_its_role(tmp_path: Path, *, asks_clients: bool) -> None:
    """All methods of the protos, called without a token, by a stranger, a client, a service and an operator."""
    wrong = []
    count = 0
    async with asyncio.timeout(LIMIT_S), store(tmp_path, asks_clients=asks_clients) as channels:
        for role in ("nobody", "stranger", *ROLE_NAMES):
            metadata = (("authorization", f"Bearer {role}-token"),) if role != "nobody" else None
            for method in proto_methods():
                channel = channels[method.containing_service.full_name.split(".")[1]]
                found = await refusal(channel, method, metadata)
                reason = found.reason if found is not None else None
                count += 1
                if reason != expected(method, role, asks_clients=asks_clients):
                    wrong.append((role, method.full_name, reason))
                if found is not None and reason == "NOT_PERMITTED":
                    assert found.code is grpc.StatusCode.PERMISSION_DENIED
                    assert found.metadata["role"] in ("service", "operator")
    assert not wrong
    assert count >= 5 * 40
