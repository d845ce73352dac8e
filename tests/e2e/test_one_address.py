# SPDX-License-Identifier: Apache-2.0
"""A single address is enough for a program: clients, commands, console and integrations through a gateway's port."""

import asyncio
import contextlib
import itertools
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import kombu_reput  # noqa: F401 - makes reput:// known
import pytest
import reput_client
from faststream_reput import ReputBroker
from reput_client import RetryPolicy, SharePolicy, aio, frames
from reput_outbox.core.sender import connect as connect_of_the_outbox

from libs.runtime.trust.tokens import local_token_path
from tests.support.console import console_of
from tests.support.mcp_session import ask, session_of
from tests.support.patience import LIMIT_S
from tests.support.reput_up import WITH_GATEWAY, Store, gateway, store

pytestmark = pytest.mark.e2e

KINDS = {"commitlog": "CommitLog", "indexer": "Indexer", "janitor": "Janitor", "delivery": "Delivery"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store as `reput up` runs it, for all tests. Each test has topics of its own."""
    with store(tmp_path_factory.mktemp("store"), *WITH_GATEWAY) as running:
        yield running


@pytest.fixture
def door(running: Store) -> str:
    """The address of its gateway."""
    return running.door


def name() -> str:
    """Return a name for a topic or a group that no other test has."""
    return f"t-{uuid.uuid4().hex[:8]}"


def send(client: reput_client.Client, topic: str, *bodies: bytes) -> None:
    """Store messages, and return when they are indexed."""
    with client.producer() as producer:
        for sent in [producer.send(topic, body, keys="k") for body in bodies]:
            client.query.wait_indexed(sent.result())


def test_a_client_needs_one_address_and_one_connection(running: Store, door: str) -> None:
    """Every part of the client works, over a single connection."""
    topic, group = name(), name()
    with reput_client.connect(door) as client:
        client.topics.create(topic)
        send(client, topic, b"1", b"2")
        assert sorted(message.body for message in client.query.by_key(topic, "k")) == [b"1", b"2"]
        with client.consumer(topic, group=group) as consumer:
            assert {message.body for message in itertools.islice(consumer, 2)} == {b"1", b"2"}
        client.share_groups.set(group, SharePolicy())
        with client.share_consumer(topic, group=group) as sharer:
            received = [one for _ in range(2) for one in sharer.receive(count=1, wait_s=LIMIT_S)]
            sharer.ack(*received)
        assert {one.message.body for one in received} == {b"1", b"2"}
        assert client.admin.retention_policy().retention_hours == 72
        with client.writer(topic) as writer:
            writer.append([reput_client.NewMessage(topic, b"3")])
            assert writer.flush().message_count == 1
        connections = running.run("--store", door, "clients", "--service", "gateway", "--json").rows
        agents = [row["user_agent"].partition(" ")[0] for row in connections]
        assert agents == ["reput-python/0.1.0"]  # the command, in this process, shares it
    assert frames.read(door, topic, columns=["partition"]).to_arrow().num_rows >= 2


async def test_asyncio(door: str) -> None:
    """The asyncio twin takes the same address."""
    topic = name()
    async with aio.connect(door) as client, client.producer() as producer:
        sent = await (await producer.send(topic, b"x", keys="k"))
        await client.query.wait_indexed(sent)
        assert [message.body async for message in client.query.by_key(topic, "k")] == [b"x"]


@pytest.mark.parametrize("service", KINDS)
def test_the_address_of_a_single_service(running: Store, service: str) -> None:
    """The error says which service is there, which service was meant, and where all are served."""
    with reput_client.connect(running.targets[service], retry=RetryPolicy(retries=0)) as client:
        calls = {
            "commitlog": lambda: client.topics.get("t"),
            "indexer": lambda: next(iter(client.query.by_key("t", "k"))),
            "janitor": client.admin.retention_policy,
            "delivery": client.delayed.levels,
        }
        for meant, call in calls.items():
            if meant == service:
                with contextlib.suppress(reput_client.NotFoundError):
                    call()
                continue
            with pytest.raises(reput_client.ServerError) as caught:
                call()
            text = str(caught.value)
            assert f"This is the {KINDS[service]}, which serves its own API alone; a gateway serves the APIs" in text
            assert "usually at port 8081" in text
            assert f"the server at {running.targets[service]} is not a" in text
        if service != "commitlog":
            with client.producer() as producer, pytest.raises(reput_client.ServerError, match="a gateway serves"):
                producer.send("t", b"x").result()


def test_commands(running: Store, door: str) -> None:
    """`reput --store` reaches every service; where each service answers for itself, the gateway passes the call on."""
    topic, group = name(), name()

    def rows(*arguments: str) -> list[Any]:
        result = running.run("--store", door, *arguments, "--json")
        assert result.code == 0, result
        return result.rows

    rows("topics", "create", topic)
    rows("put", topic, "hello", "--key", "k")
    with reput_client.connect(door) as client:
        send(client, topic, b"second")
    assert sorted(row["body"] for row in rows("query", "key", topic, "k")) == ["hello", "second"]
    rows("groups", "set", group)
    (status,) = rows("status")
    assert status["verdict"]["is_healthy"] or status["verdict"]["troubles"]
    assert (status["commitlog"]["state"], status["indexer"]["state"]) == ("SERVING", "LIVE")
    assert {status[one][0]["target"] for one in ("delivery", "gateway")} == {door}
    health = [(row["service"], row["health"]) for row in rows("health")]
    assert health == [(one, "SERVING") for one in ("commitlog", "indexer", "janitor", "gateway")]
    names = {*KINDS, "gateway"}
    assert {row["service"] for row in rows("clients")} == names
    assert {row["service"] for row in rows("clients", "--service", "janitor")} == {"janitor"}
    assert "TopicService/CreateTopic" in str([row["method"] for row in rows("audit", "list") if topic in str(row)])
    assert rows("janitor", "status")[0]["deleted_segment_count"] == 0
    refused = running.run("--store", door, "promote")
    assert (refused.code, "a gateway chooses the log that it asks" in refused.errors) == (2, True)
    rows("topics", "delete", topic, "--yes")


def test_commands_at_a_wrong_address(running: Store) -> None:
    """A command that is given a single service as the store says so, and takes no missing Delivery for granted."""
    for service, arguments in (
        ("indexer", ("groups", "list")),
        ("indexer", ("topics", "list")),
        ("commitlog", ("query", "key", "t", "k")),
        ("delivery", ("put", "t", "x")),
    ):
        result = running.run("--store", running.targets[service], *arguments)
        assert result.code == 1, (service, arguments, result)
        assert f"This is the {KINDS[service]}" in result.errors or f"This is {KINDS[service]}" in result.errors


def test_a_killed_gateway_costs_a_retry(running: Store, door: str, caplog: pytest.LogCaptureFixture) -> None:
    """A writer and calls go on at the next gateway after a failure each, and no message is lost or doubled."""
    topic = name()

    def append(writer: reput_client.Writer, start: int) -> None:
        for number in range(start, start + 50):
            writer.append([reput_client.NewMessage(topic, b"%d" % number)])
        writer.flush()

    with (
        gateway(running.targets) as (first, process),
        reput_client.connect(f"{first},{door}") as client,
        client.writer(topic) as writer,
    ):
        client.topics.create(topic, write_queue_count=1, read_queue_count=1)
        append(writer, 0)
        assert client.admin.indexer_status().state
        process.kill()
        process.wait()
        caplog.set_level(logging.INFO, logger="reput_client")
        append(writer, 50)
        assert client.topics.get(topic).write_queue_count == 1
        with client.consumer(topic) as consumer:
            found = [message.body for message in itertools.islice(consumer, 100)]
        assert found == [b"%d" % number for number in range(100)]
        failures = [text for text in map(logging.LogRecord.getMessage, caplog.records) if first in text]
        assert sorted(text.partition(" at ")[0] for text in failures) == ["commitlog", "indexer"], failures


def test_a_gateway_that_starts_again(running: Store) -> None:
    """A client with the address of a single gateway waits for it."""
    topic = name()
    with gateway(running.targets) as (target, process), reput_client.connect(target) as client:
        client.topics.create(topic)
        send(client, topic, b"before")
        process.kill()
        process.wait()
        with gateway(running.targets, port=int(target.rpartition(":")[2])):
            send(client, topic, b"after")
            assert {message.body for message in client.query.by_key(topic, "k")} == {b"before", b"after"}


def test_consumers_that_do_not_read_hold_up_no_call(door: str) -> None:
    """Calls and appends of a client go on beside its own streams that wait for a slow program."""
    topic = name()
    with reput_client.connect(door) as client, contextlib.ExitStack() as slow:
        client.topics.create(topic, write_queue_count=1, read_queue_count=1)
        send(client, topic, *[bytes(200_000)] * 100)
        for _ in range(8):
            consumer = slow.enter_context(client.consumer(topic))
            assert consumer.poll(LIMIT_S) is not None
        for _ in range(100):
            assert client.topics.get(topic).write_queue_count == 1
            assert client.queues.range(topic, 0).max_queue_offset >= 100
        send(client, topic, *[bytes(200_000)] * 20)
        assert client.delayed.levels()


def test_the_console(door: str) -> None:
    """Its setting `store_target` is enough for all pages, and the connections of the gateway are shown."""
    topic = name()
    with reput_client.connect(door) as client:
        client.topics.create(topic)
        send(client, topic, b"x")
    token = f"--store-token-file={local_token_path()}"
    with console_of({"store": door}, token) as console:
        services = {one["name"]: one["health"] for one in console.json("/store.json")["services"]}
        assert services == dict.fromkeys(KINDS.values(), "good")
        assert console.json(f"/find.json?q=k&topic={topic}")["outcome"] == "found"
        assert {row["service"] for row in console.json("/connections.json")["rows"]} == {*KINDS, "gateway"}
        for path in ("/groups.json", "/dead-letters.json", "/delayed.json", "/retention.json"):
            assert console.json(path)["gaps"] == [], path


async def test_language_models(running: Store, door: str, tmp_path: Path) -> None:
    """`reput --store` gives `reput mcp` all services."""
    async with session_of(running, tmp_path / "log", before=("--store", door)) as session:
        status = await ask(session, "store_status")
        assert {one["health"] for one in status["services"]} == {"good"}
        assert len(status["services"]) == len(KINDS)


def test_kombu(door: str) -> None:
    """A URL of Kombu is the address of the store."""
    with kombu.Connection(f"reput://{door}/{name()}") as connection, connection.SimpleQueue("jobs") as queue:
        queue.put({"id": 17})
        message = queue.get(timeout=LIMIT_S)
        message.ack()
        assert message.payload == {"id": 17}


async def test_faststream(door: str) -> None:
    """The first argument of FastStream's broker is the address of the store."""
    topic, broker, got = name(), ReputBroker(door, group=name(), poll_s=0.2), asyncio.Event()

    @broker.subscriber(topic, policy=SharePolicy())
    async def handler(body: str) -> None:
        assert body == "x"
        got.set()

    async with aio.connect(door) as client:
        await client.topics.create(topic)
    async with asyncio.timeout(LIMIT_S), broker:
        await broker.start()
        await broker.publish("x", topic)
        await got.wait()


def test_a_variable_is_enough(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs without an address, such as the relay of an outbox, find the store by a variable."""
    monkeypatch.setenv("REPUT_CLIENT_STORE_TARGET", door)
    with connect_of_the_outbox() as client:
        client.topics.create(topic := name())
        send(client, topic, b"x")
        assert f"delivery={door!r}" in repr(client)
