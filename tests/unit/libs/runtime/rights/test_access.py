# SPDX-License-Identifier: Apache-2.0
"""Subjects by token and certificate, and a rights file that changes, through a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2, topic_service_pb2
from reput.delivery.v1 import delivery_service_pb2
from reput.indexer.v1 import queue_service_pb2

from libs.runtime.errors import ConfigError
from libs.runtime.http2.heads import Metadata, metadata_of
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import ServerConfig
from libs.runtime.trust import tokens
from libs.runtime.trust.rights import access as access_module
from tests.support.certificates import OPENSSL, self_signed
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime.servers import APPEND, APPEND_STREAM, DELETE_TOPIC, GET_STATUS, Served, details_of, serving

pytestmark = pytest.mark.usefixtures("each_front")

RIGHTS = """
[[subjects]]
name = "shop"
token_file = "shop.token"
certificates = ["shop"]

[[subjects]]
name = "keeper"
token_file = "keeper.token"

[[rules]]
subjects = ["shop"]
allow = ["produce"]
topics = ["orders"]

[[rules]]
subjects = ["keeper"]
allow = ["administer"]
topics = ["*"]
"""


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call look whether files have changed."""
    monkeypatch.setattr(tokens, "CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(access_module, "CHECK_INTERVAL_S", 0.0)


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    """A server with two subjects, and tokens of an operator and a service."""
    for name in ("shop", "keeper", "operator", "service"):
        (tmp_path / f"{name}.token").write_text(f"{name}-token\n")
    (tmp_path / "rights.toml").write_text(RIGHTS)
    return ServerConfig(
        port=0,
        rights_file=tmp_path / "rights.toml",
        operator_token_file=tmp_path / "operator.token",
        service_token_file=tmp_path / "service.token",
    )


def batch(*topics: str, body: bytes = b"x") -> bytes:
    messages = [append_service_pb2.AppendMessage(topic=topic, body=body) for topic in topics]
    return append_service_pb2.AppendRequest(messages=messages).SerializeToString()


async def outcome(served: Served, method: str, request: bytes, token: str = "") -> str:
    """OK, or reason, subject, action and resource of the refusal."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    try:
        await served.call(method, request, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        info = details_of(error)[0]
        named = [info.metadata[key] for key in ("subject", "action", "resource") if key in info.metadata]
        return " / ".join([info.reason, *named])
    return "OK"


async def test_a_token_gives_the_rights_of_its_subject(config: ServerConfig) -> None:
    """All topics of a batch have to be permitted. Services and operators may do all; a wrong token is no caller."""
    delete = topic_service_pb2.DeleteTopicRequest(name="orders").SerializeToString()
    async with serving(config) as served:
        assert await outcome(served, APPEND, batch("orders", "orders"), "shop-token") == "OK"
        refused = "NOT_PERMITTED / shop / produce / topic payments"
        assert await outcome(served, APPEND, batch("orders", "payments"), "shop-token") == refused
        assert await outcome(served, APPEND, batch("orders"), "keeper-token") == (
            "NOT_PERMITTED / keeper / produce / topic orders"
        )
        assert await outcome(served, DELETE_TOPIC, delete, "shop-token") == (
            "NOT_PERMITTED / shop / administer / topic orders"
        )
        assert await outcome(served, DELETE_TOPIC, delete, "keeper-token") == "OK"
        for token in ("operator-token", "service-token"):
            assert await outcome(served, APPEND, batch("payments"), token) == "OK"
        assert await outcome(served, APPEND, batch("orders"), "wrong") == "UNAUTHENTICATED"
        assert await outcome(served, APPEND, batch("orders")) == "NOT_PERMITTED / anonymous / produce / topic orders"
        assert await outcome(served, GET_STATUS, b"") == "OK", "a state names no topic"
        assert served.server.access.statistics().refused_requests_total == 4
        assert served.append.requests.count(batch("orders", "payments")) == 0


async def test_a_client_without_a_token_is_refused_where_tokens_are_asked_for(
    config: ServerConfig, tmp_path: Path
) -> None:
    """The token of `token_file` names nobody: its callers are anonymous."""
    (tmp_path / "client.token").write_text("client-token")
    async with serving(replace(config, token_file=tmp_path / "client.token")) as served:
        assert await outcome(served, GET_STATUS, b"") == "UNAUTHENTICATED"
        assert await outcome(served, GET_STATUS, b"", "client-token") == "OK"
        assert await outcome(served, APPEND, batch("orders"), "client-token") == (
            "NOT_PERMITTED / anonymous / produce / topic orders"
        )
        assert await outcome(served, APPEND, batch("orders"), "shop-token") == "OK"


async def test_a_changed_file_is_in_force_and_a_wrong_file_changes_nothing(
    config: ServerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong file is named in the log with line, field and value, and counted."""
    assert config.rights_file is not None
    async with serving(config) as served:
        statistics = served.server.access.statistics
        assert await outcome(served, APPEND, batch("payments"), "shop-token") != "OK"
        config.rights_file.write_text(RIGHTS.replace('"orders"', '"payments"'))
        assert await outcome(served, APPEND, batch("payments"), "shop-token") == "OK"
        assert await outcome(served, APPEND, batch("orders"), "shop-token") != "OK"
        config.rights_file.write_text(RIGHTS.replace('"produce"', '"writes"'))
        assert await outcome(served, APPEND, batch("payments"), "shop-token") == "OK"
        assert "line 13: rules[0].allow is 'writes': must be produce" in caplog.text
        assert (statistics().failed_reloads_total, statistics().is_outdated) == (1, 1)
        config.rights_file.write_text(RIGHTS)
        assert await outcome(served, APPEND, batch("orders"), "shop-token") == "OK"
        assert (statistics().failed_reloads_total, statistics().is_outdated) == (1, 0)
        assert (statistics().subject_count, statistics().rule_count) == (2, 2)


async def test_a_changed_token_is_in_force(config: ServerConfig, tmp_path: Path) -> None:
    """A subject's token is renewed in its own file, as all tokens are."""
    async with serving(config) as served:
        (tmp_path / "shop.token").write_text("newer-token\n")
        assert await outcome(served, APPEND, batch("orders"), "newer-token") == "OK"
        assert await outcome(served, APPEND, batch("orders"), "shop-token") == "UNAUTHENTICATED"


async def test_a_wrong_file_refuses_the_start(config: ServerConfig) -> None:
    """A service with a wrong rights file does not start."""
    assert config.rights_file is not None
    config.rights_file.write_text(RIGHTS.replace('"produce"', '"writes"'))
    with pytest.raises(ConfigError, match="line 13"):
        async with serving(config):
            pass


async def test_a_stream_is_checked_request_by_request(config: ServerConfig) -> None:
    """A method that answers no refusals itself ends with the first."""
    async with serving(config) as served:
        metadata = (("authorization", "Bearer shop-token"),)
        call: Any = served.channel.stream_stream(APPEND_STREAM)(metadata=metadata)
        await call.write(batch("orders"))
        assert await call.read() == batch("orders")
        await call.write(batch("payments"))
        with pytest.raises(grpc.aio.AioRpcError, match="shop may not produce topic payments") as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert served.append.requests == [batch("orders")]


class Subscriptions:
    """Streams of answers without an end."""

    async def Subscribe(self, request: object, context: object) -> AsyncIterator[object]:  # noqa: N802
        """Answer again and again."""
        while True:
            yield queue_service_pb2.SubscribeResponse()
            await asyncio.sleep(0.01)


class Consumptions:
    """The same for streams of requests."""

    async def Consume(self, requests: AsyncIterator[object], context: object) -> AsyncIterator[object]:  # noqa: N802
        """Answer again and again, after the first request."""
        await anext(requests)
        while True:
            yield delivery_service_pb2.ConsumeResponse()
            await asyncio.sleep(0.01)


def endless(server: GrpcServer) -> None:
    """Serve streams of answers without an end."""
    server.add_service(queue_service_pb2.DESCRIPTOR.services_by_name["QueueService"], Subscriptions())
    server.add_service(delivery_service_pb2.DESCRIPTOR.services_by_name["DeliveryService"], Consumptions())


SUBSCRIBE, CONSUME = "/reput.indexer.v1.QueueService/Subscribe", "/reput.delivery.v1.DeliveryService/Consume"
CONSUMER = """
[[rules]]
subjects = ["shop"]
allow = ["consume"]
topics = ["orders"]
groups = ["g"]
"""


async def read_to_the_end(call: Any) -> None:
    while await call.read() != grpc.aio.EOF:
        pass


@pytest.mark.parametrize("kind", ["Subscribe", "Consume"])
async def test_a_stream_of_answers_ends_when_its_right_is_taken(config: ServerConfig, kind: str) -> None:
    """A subscriber does not read on until it connects again. A change that takes nothing from it ends nothing."""
    assert config.rights_file is not None
    config.rights_file.write_text(RIGHTS + CONSUMER)
    async with serving(config, prepare=endless) as served:
        metadata = (("authorization", "Bearer shop-token"),)
        call: Any
        if kind == "Subscribe":
            subscribe = queue_service_pb2.SubscribeRequest(topic="orders").SerializeToString()
            call = served.channel.unary_stream(SUBSCRIBE)(subscribe, metadata=metadata, timeout=LIMIT_S)
        else:
            begin = delivery_service_pb2.ConsumeBegin(group="g", topics=["orders"])
            call = served.channel.stream_stream(CONSUME)(metadata=metadata, timeout=LIMIT_S)
            await call.write(delivery_service_pb2.ConsumeRequest(begin=begin).SerializeToString())
        assert await call.read() == b""
        config.rights_file.write_text(RIGHTS + CONSUMER + "# changed")
        for _ in range(3):
            assert await call.read() == b""
        config.rights_file.write_text(RIGHTS + CONSUMER.replace('"orders"', '"others"'))
        with pytest.raises(grpc.aio.AioRpcError, match="shop may not consume"):
            await read_to_the_end(call)


async def test_the_name_of_a_caller_is_known_with_and_without_rights(config: ServerConfig) -> None:
    """For logs: the subject where rights are set, else the role."""

    class Call:
        def __init__(self, token: str) -> None:
            self._token = token

        def invocation_metadata(self) -> Metadata:
            bearer = (b"authorization", f"Bearer {self._token}".encode())
            return metadata_of([bearer, (b"x-bin", b"@@@" if self._token == "damaged" else b"AA")])

        def auth_context(self) -> dict[str, list[bytes]]:
            return {}

    names = {"shop-token": "shop", "": "anonymous", "operator-token": "operator", "service-token": "service"}
    names["damaged"] = "anonymous"
    async with serving(config) as served:
        assert {token: served.server.access.name_of(Call(token)) for token in names} == names
    names |= {"shop-token": "client", "": "client"}
    async with serving(replace(config, rights_file=None)) as served:
        assert {token: served.server.access.name_of(Call(token)) for token in names} == names


@contextlib.asynccontextmanager
async def with_certificate(config: ServerConfig, directory: Path, name: str) -> AsyncIterator[Served]:
    """A server that asks for certificates, and a caller with the certificate of this name."""
    files = self_signed(directory, "server", "shop", "other")
    authorities = directory / "clients.pem"
    authorities.write_bytes(files["shop.pem"].read_bytes() + files["other.pem"].read_bytes())
    config = replace(
        config,
        tls_certificate_file=files["server.pem"],
        tls_key_file=files["server.key"],
        tls_client_ca_file=authorities,
    )
    credentials = grpc.ssl_channel_credentials(
        files["server.pem"].read_bytes(), files[f"{name}.key"].read_bytes(), files[f"{name}.pem"].read_bytes()
    )
    async with serving(config, credentials=credentials) as served:
        yield served


@pytest.mark.skipif(OPENSSL is None, reason="no openssl")
@pytest.mark.parametrize(("name", "expected"), [("shop", "OK"), ("other", "NOT_PERMITTED")])
async def test_a_certificate_gives_the_rights_of_its_subject(
    config: ServerConfig, tmp_path: Path, name: str, expected: str
) -> None:
    """The subject is found by the names of a verified certificate. A token goes before it."""
    async with with_certificate(config, tmp_path, name) as served:
        assert (await outcome(served, APPEND, batch("orders"))).split(" ")[0] == expected
        assert (await outcome(served, APPEND, batch("orders"), "keeper-token")).startswith("NOT_PERMITTED / keeper")
        assert await outcome(served, APPEND, batch("orders"), "shop-token") == "OK"
