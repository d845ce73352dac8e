# SPDX-License-Identifier: Apache-2.0
"""Who a caller behind the door is: its token, its certificate and its address are judged by the services themselves."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2, append_service_pb2_grpc, topic_service_pb2, topic_service_pb2_grpc
from reput.common.v1 import (
    audit_service_pb2,
    audit_service_pb2_grpc,
    connection_service_pb2,
    connection_service_pb2_grpc,
)

from libs.runtime.http2 import behind
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.tokens import find_local_token
from tests.support.certificates import OPENSSL, self_signed
from tests.support.patience import LIMIT_S
from tests.support.served_door import SERVER, Store, door, store
from tests.support.trusted import trusted

pytestmark = [pytest.mark.e2e]

C = grpc.StatusCode
RIGHTS = """
[[subjects]]
name = "shop"
token_file = "shop.token"
certificates = ["shop"]
[[subjects]]
name = "slow"
token_file = "slow.token"
connection_count_max = 1

[[rules]]
subjects = ["shop", "slow"]
allow = ["produce", "query"]
topics = ["orders"]
"""
Metadata = tuple[tuple[str, str | bytes], ...]


@pytest.fixture
def settings(tmp_path: Path) -> ServerConfig:
    """Settings of services with rights."""
    for name in ("shop", "slow", "door"):
        (tmp_path / f"{name}.token").write_text(f"{name}-token\n")
        (tmp_path / f"{name}.token").chmod(0o600)
    (tmp_path / "rights.toml").write_text(RIGHTS)
    return replace(SERVER, rights_file=tmp_path / "rights.toml")


def bearer(token: str) -> Metadata:
    """Return the metadata of a caller with a token."""
    return (("authorization", f"Bearer {token}"),)


def operator() -> Metadata:
    """Return the metadata of an operator of this machine."""
    return bearer(find_local_token(()) or "")


async def append(channel: grpc.aio.Channel, topic: str, metadata: Metadata = ()) -> str:
    """Append a message. Returns OK or the code and the text of the refusal."""
    stub: Any = append_service_pb2_grpc.AppendServiceStub(channel)
    request = append_service_pb2.AppendRequest(messages=[append_service_pb2.AppendMessage(topic=topic, body=b"x")])
    try:
        await stub.Append(request, metadata=metadata, timeout=LIMIT_S)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {error.details()}"
    return "OK"


def through(found: Store, name: str = "gateway") -> grpc.aio.Channel:
    """Return a channel with a connection of its own."""
    return grpc.aio.insecure_channel(found.targets[name], options=[("grpc.use_local_subchannel_pool", 1)])


async def test_rights(tmp_path: Path, settings: ServerConfig) -> None:
    """Rights, audit lines and connections are of the caller, not of the gateway."""
    async with store(tmp_path, settings) as found, door(found), through(found) as channel:
        topics: Any = topic_service_pb2_grpc.TopicServiceStub(channel)
        await topics.CreateTopic(topic_service_pb2.CreateTopicRequest(name="orders"), metadata=operator())
        assert await append(channel, "orders", bearer("shop-token")) == "OK"
        refused = await append(channel, "payments", bearer("shop-token"))
        assert refused.startswith("PERMISSION_DENIED shop may not produce topic payments"), refused
        assert "anonymous" in await append(channel, "orders")
        assert (await append(channel, "orders", bearer("other"))).startswith("UNAUTHENTICATED a valid bearer token")
        at_log = (*operator(), ("reput-service", "commitlog"))
        audits: Any = audit_service_pb2_grpc.AuditServiceStub(channel)
        answer = await audits.ListLines(audit_service_pb2.ListLinesRequest(), metadata=at_log, timeout=LIMIT_S)
        lines = [json.loads(line.json) for line in answer.lines]
        (denied,) = [line for line in lines if line["subject"] == "shop" and line["event"] == "refusal"]
        connections: Any = connection_service_pb2_grpc.ConnectionServiceStub(channel)
        request = connection_service_pb2.ListConnectionsRequest()
        own = (await connections.ListConnections(request, metadata=operator(), timeout=LIMIT_S)).connections
        here = {connection.peer for connection in own}
        assert denied["address"] in here
        listed = (await connections.ListConnections(request, metadata=at_log, timeout=LIMIT_S)).connections
        (mine,) = [connection for connection in listed if connection.peer == denied["address"]]
        assert mine.subject == "operator"
        assert mine.call_count >= 5
        assert mine.door in {connection.peer for connection in listed if not connection.door}


async def test_quota_of_connections(tmp_path: Path, settings: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of connections counts the callers behind the gateway that have called lately, not its own connection."""
    monkeypatch.setattr(behind, "QUIET_S", 4.0)
    async with store(tmp_path, settings) as found, door(found), through(found) as first, through(found) as second:
        assert await append(first, "orders", bearer("slow-token")) == "OK"
        assert "connection_count_max is 1" in await append(second, "orders", bearer("slow-token"))
        assert await append(first, "orders", bearer("slow-token")) == "OK"
        assert await append(second, "orders", bearer("shop-token")) == "OK"
        async with asyncio.timeout(LIMIT_S):
            while await append(second, "orders", bearer("slow-token")) != "OK":  # noqa: ASYNC110 - time has no event
                await asyncio.sleep(0.2)
        assert "connection_count_max is 1" in await append(first, "orders", bearer("slow-token"))


def forged(token: str, peer: str = "ipv4:1.2.3.4:5", names: Any = None) -> Iterator[tuple[str, str | bytes]]:
    """Yield metadata that only a door sends."""
    yield "reput-door", token
    yield "reput-door-peer", peer
    if names is not None:
        yield "reput-door-certificate-bin", json.dumps(names).encode()


async def test_forged(tmp_path: Path, settings: ServerConfig) -> None:
    """Nobody but a gateway passes an identity on: forged metadata are refused by services, and stop at the door."""
    names = {"x509_common_name": ["shop"]}
    own_door = replace(settings, door_token_file=tmp_path / "door.token")
    service_token = find_local_token(()) or ""
    async with store(tmp_path, own_door) as found, through(found, "commitlog") as direct:
        for metadata in (
            tuple(forged("", names=names)),
            tuple(forged("shop-token", names=names)),
            tuple(forged(service_token, names=names)),
            tuple(forged("door-token", names=names))[1:],
            (*forged("door-token", names=names), ("reput-door", "door-token")),
            tuple(forged("door-token", names=["x"])),
            tuple(forged("door-token", peer="x" * 101)),
            (("reput-door-other", "x"),),
        ):
            answer = await append(direct, "orders", metadata)
            assert answer.startswith("UNAUTHENTICATED the metadata reput-door"), (metadata, answer)
        assert await append(direct, "orders", tuple(forged("door-token", names=names))) == "OK"
        assert "anonymous" in await append(direct, "orders", tuple(forged("door-token", names={})))
        assert "anonymous" in await append(direct, "orders", bearer("door-token")), "it gives no other right"
        async with door(found), through(found) as channel:
            refused = await append(channel, "orders", tuple(forged("door-token", names=names)))
            assert refused.startswith("UNAUTHENTICATED the metadata reput-door"), "this gateway has another token"
        async with door(found, own_door), through(found) as channel:
            assert "anonymous" in await append(channel, "orders", tuple(forged("door-token", names=names)))
            assert await append(channel, "orders", bearer("shop-token")) == "OK"


@contextlib.asynccontextmanager
async def certified(found: Store, directory: Path, name: str) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to the gateway with a client's certificate."""
    credentials = grpc.ssl_channel_credentials(
        *((directory / file).read_bytes() for file in ("door.pem", f"{name}.key", f"{name}.pem"))
    )
    target = f"localhost:{found.targets['gateway'].rpartition(':')[2]}"
    async with grpc.aio.secure_channel(target, credentials) as channel:
        yield channel


@pytest.mark.skipif(OPENSSL is None, reason="needs the openssl command")
async def test_certificates(tmp_path: Path, settings: ServerConfig) -> None:
    """The certificate of a caller is shown to the door, and its names give rights at the services."""
    files = self_signed(tmp_path, "door", "shop", "guest")
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(b"".join((tmp_path / f"{name}.pem").read_bytes() for name in ("shop", "guest")))
    outside = replace(
        SERVER,
        tls_certificate_file=files["door.pem"],
        tls_key_file=files["door.key"],
        tls_client_ca_file=authorities,
    )
    needing = replace(settings, token_file=tmp_path / "slow.token")
    async with store(tmp_path, needing) as found, door(found, outside):
        async with certified(found, tmp_path, "shop") as channel:
            assert await append(channel, "orders") == "OK"
            assert "shop may not produce" in await append(channel, "payments")
        async with certified(found, tmp_path, "guest") as channel:
            assert (await append(channel, "orders")).startswith("UNAUTHENTICATED")
            assert await append(channel, "orders", bearer("shop-token")) == "OK"
            async with trusted(channel) as trusting:
                topics: Any = topic_service_pb2_grpc.TopicServiceStub(trusting)
                await topics.DeleteTopic(topic_service_pb2.DeleteTopicRequest(name="orders"), timeout=LIMIT_S)
