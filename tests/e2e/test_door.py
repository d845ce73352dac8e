# SPDX-License-Identifier: Apache-2.0
"""The door over a real store: every API on the gateway's port, with what a direct call shows."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from reput.commitlog.v1 import append_service_pb2, append_service_pb2_grpc, topic_service_pb2, topic_service_pb2_grpc
from reput.common.v1 import connection_service_pb2, connection_service_pb2_grpc
from reput.indexer.v1 import queue_service_pb2, queue_service_pb2_grpc
from reput.janitor.v1 import retention_service_pb2, retention_service_pb2_grpc
from reput_client import aio

from tests.support.patience import LIMIT_S
from tests.support.served_door import Store, door, store
from tests.support.surroundings import free_port
from tests.support.trusted import trusted

pytestmark = [pytest.mark.e2e]

C = grpc.StatusCode
SERVICES = ("commitlog", "indexer", "delivery", "janitor")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Store]:
    """A store with a gateway."""
    async with store(tmp_path) as found, door(found):
        yield found


def through(found: Store) -> grpc.aio.Channel:
    """Return a channel of an operator to the gateway."""
    return trusted(grpc.aio.insecure_channel(found.targets["gateway"]))


def client_of(found: Store) -> aio.AsyncClient:
    """Return a client that knows the gateway's address alone."""
    return aio.connect(**dict.fromkeys(SERVICES, found.targets["gateway"]))


async def failed(call: Any) -> tuple[Any, ...]:
    """Return what a caller sees of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details(), tuple(caught.value.trailing_metadata() or ())


async def test_main_paths(served: Store) -> None:
    """Messages are sent, found by key and queue, shared among the members of a group, and kept as the Janitor says."""
    async with client_of(served) as client:
        await client.topics.create("orders", write_queue_count=2, read_queue_count=2)
        async with client.producer() as producer:
            sent = [await producer.send("orders", b"%d" % number, keys=f"k{number}") for number in range(50)]
            places = [await one for one in sent]
        await client.query.wait_indexed(places[-1])
        assert [message.body async for message in client.query.by_key("orders", "k7")] == [b"7"]
        async with client.share_consumer("orders", group="g") as sharer:
            received: set[bytes] = set()
            while len(received) < 50:
                some = await sharer.receive()
                received |= {one.message.body for one in some}
                await sharer.ack(*some)
        assert received == {b"%d" % number for number in range(50)}
        async with client.consumer("orders") as reader:
            read = set()
            async for message in reader:
                read.add(message.body)
                if len(read) == 50:
                    break
        assert read == received
        assert (await client.admin.retention_policy()).retention_hours == 72


async def test_errors_are_the_services_own(served: Store) -> None:
    """A refused call has the code, the text and the details of a direct call."""
    request = topic_service_pb2.GetTopicRequest(name="missing")
    seen = []
    for name in ("commitlog", "gateway"):
        async with grpc.aio.insecure_channel(served.targets[name]) as channel:
            topics: Any = topic_service_pb2_grpc.TopicServiceStub(channel)
            seen.append(await failed(topics.GetTopic(request, timeout=LIMIT_S)))
            seen.append(await failed(topics.DeleteTopic(topic_service_pb2.DeleteTopicRequest(name="missing"))))
            unknown = channel.unary_unary("/reput.commitlog.v1.TopicService/Nothing")
            seen.append(await failed(unknown(b"", timeout=LIMIT_S)))
    assert seen[:3] == seen[3:]
    assert [one[0] for one in seen[:3]] == [C.NOT_FOUND, C.PERMISSION_DENIED, C.UNIMPLEMENTED]


async def test_large_messages(served: Store) -> None:
    """Batches up to the CommitLog's limit go through; a larger batch is refused with the CommitLog's own words."""
    message = append_service_pb2.AppendMessage(topic="large", body=bytes(4 << 20))
    largest = append_service_pb2.AppendRequest(messages=[message] * 3)
    seen = []
    for name in ("commitlog", "gateway"):
        async with grpc.aio.insecure_channel(served.targets[name]) as channel:
            appends: Any = append_service_pb2_grpc.AppendServiceStub(channel)
            answer = await appends.Append(largest, timeout=LIMIT_S)
            assert len(answer.result.physical_offsets) == 3
            too_large = append_service_pb2.AppendRequest(messages=[message] * 9)
            seen.append(await failed(appends.Append(too_large, timeout=LIMIT_S)))
    assert seen[0] == seen[1]


async def test_streams(served: Store) -> None:
    """A stream of batches both ways, and a subscription whose caller leaves."""
    async with through(served) as channel:
        appends: Any = append_service_pb2_grpc.AppendServiceStub(channel)
        stream = appends.AppendStream(timeout=LIMIT_S)
        for _ in range(20):
            message = append_service_pb2.AppendMessage(topic="t", body=bytes(200_000), queue_id=0)
            await stream.write(append_service_pb2.AppendStreamRequest(messages=[message]))
        outcomes: list[append_service_pb2.AppendOutcome] = []
        while len(outcomes) < 20:
            outcomes += (await stream.read()).outcomes
        await stream.done_writing()
        offsets = [offset for outcome in outcomes for offset in outcome.result.queue_offsets]
        assert offsets == list(range(20))
        queues: Any = queue_service_pb2_grpc.QueueServiceStub(channel)
        subscription = queues.Subscribe(queue_service_pb2.SubscribeRequest(topic="t", queue_id=0), timeout=LIMIT_S)
        count = 0
        while count < 20:
            count += len((await subscription.read()).messages)
        subscription.cancel()


async def test_methods_of_all_services(served: Store) -> None:
    """Metadata say which service gets a call that all of them take; without them the gateway answers."""
    async with through(served) as channel:
        connections: Any = connection_service_pb2_grpc.ConnectionServiceStub(channel)
        request = connection_service_pb2.ListConnectionsRequest()
        token = trusted_metadata()
        own = await connections.ListConnections(request, timeout=LIMIT_S)
        assert any(one.peer.startswith("ipv4:127.0.0.1") for one in own.connections)
        for name in SERVICES:
            metadata = (("reput-service", name), token)
            answer = await connections.ListConnections(request, metadata=metadata, timeout=LIMIT_S)
            assert answer.connection_count > 0
        allowed = "send one of commitlog, indexer, delivery, janitor"
        for values, told in (
            (("",), f"reput-service: is empty; {allowed}"),
            (("x",), f"reput-service: 'x' is no service; {allowed}"),
            (("CommitLog",), f"reput-service: 'CommitLog' is no service; {allowed}"),
            (
                ("janitor", "x"),
                f"reput-service: has 2 values, 'janitor', 'x', but a call goes to one service; {allowed}",
            ),
            (("janitor", "janitor"), "reput-service: has 2 values, 'janitor', 'janitor', but"),
            (("a",) * 5, "reput-service: has 5 values, 'a', 'a', 'a' and 2 more, but"),
        ):
            metadata = (*(("reput-service", value) for value in values), token)
            code, text, found = await failed(connections.ListConnections(request, metadata=metadata, timeout=LIMIT_S))
            assert code is C.INVALID_ARGUMENT, values
            assert text.startswith(told), text
            assert any(b"BAD_ARGUMENT" in value for _, value in found if isinstance(value, bytes))


def trusted_metadata() -> tuple[str, str]:
    """Return the metadata of an operator's call."""
    from libs.runtime.trust.tokens import find_local_token

    return ("authorization", f"Bearer {find_local_token(())}")


async def test_health_and_reflection(served: Store) -> None:
    """Each service has its own health, and reflection describes all of them."""
    async with grpc.aio.insecure_channel(served.targets["gateway"]) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)

        async def check(service: str, **options: Any) -> int:
            request = health_pb2.HealthCheckRequest(service=service)
            return int((await health.Check(request, timeout=LIMIT_S, **options)).status)

        for service in (
            "",
            "apache.rocketmq.v2.MessagingService",
            "reput.commitlog.v1.AppendService",
            "reput.indexer.v1.QueueService",
            "reput.delivery.v1.DeliveryService",
            "reput.janitor.v1.RetentionService",
        ):
            assert await check(service) == health_pb2.HealthCheckResponse.SERVING, service
        code, *_ = await failed(check("x"))
        assert code is C.NOT_FOUND
        assert await check("", metadata=(("reput-service", "janitor"),)) == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(service="reput.janitor.v1.RetentionService"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            *(
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=f"reput.{name}.v1.{service}")
                for name, service in (("commitlog", "AppendService"), ("janitor", "RetentionService"))
            ),
        ]
        answers = [answer async for answer in reflection.ServerReflectionInfo(iter_of(asked))]
        names = {service.name for service in answers[0].list_services_response.service}
        assert {f"reput.{name}.v1" for name in SERVICES} <= {name.rpartition(".")[0] for name in names}
        assert all(answer.file_descriptor_response.file_descriptor_proto for answer in answers[1:])


async def iter_of(messages: list[Message]) -> AsyncIterator[Any]:
    """Yield messages."""
    for message in messages:
        yield message


async def test_without_a_janitor(tmp_path: Path) -> None:
    """A service that the gateway does not have is UNIMPLEMENTED, a service that is away UNAVAILABLE, with its name."""
    async with (
        store(tmp_path) as found,
        door(found, janitor="", delivery=f"127.0.0.1:{free_port()}"),
        through(found) as channel,
    ):
        janitor: Any = retention_service_pb2_grpc.RetentionServiceStub(channel)
        code, text, _ = await failed(janitor.GetStatus(retention_service_pb2.GetStatusRequest(), timeout=LIMIT_S))
        assert code is C.UNIMPLEMENTED
        assert "janitor_target" in text
        away = channel.unary_unary("/reput.delivery.v1.GroupService/ListGroups")
        code, text, metadata = await failed(away(b"", timeout=LIMIT_S))
        assert code is C.UNAVAILABLE
        assert "delivery" in text
        assert any(b"DEPENDENCY_UNAVAILABLE" in value for _, value in metadata if isinstance(value, bytes))
        health: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="reput.delivery.v1.GroupService")
        assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_stop_ends_streams(tmp_path: Path) -> None:
    """A gateway that stops ends the streams that it passes on, so that their callers go elsewhere at once."""
    async with store(tmp_path) as found, contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(door(found))
        async with through(found) as channel:
            appends: Any = append_service_pb2_grpc.AppendServiceStub(channel)
            stream = appends.AppendStream(timeout=LIMIT_S)
            message = append_service_pb2.AppendMessage(topic="t", body=b"x")
            await stream.write(append_service_pb2.AppendStreamRequest(messages=[message]))
            await stream.read()
            await stack.aclose()
            assert await stream.code() is C.UNAVAILABLE
