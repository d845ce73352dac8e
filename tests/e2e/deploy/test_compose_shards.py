# SPDX-License-Identifier: Apache-2.0
"""Two shards in containers, as docs/scale.md starts them: keys keep their order while a shard is killed and changes."""

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from reput_client import SendResult, ShardedClient, connect_shards

from tests.e2e.deploy.commands import Compose, composed, start_all

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(1500)]

GATEWAY = "127.0.0.1:8081"
KEYS = [f"order-{number}" for number in range(16)]
WAIT_S = 120.0


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    """The compose file's store and the second shard, as a project of this test."""
    with composed("reput-e2e-shards", "docker-compose.yml", "docker-compose.shards.yml") as compose:
        yield compose


@pytest.fixture
def client(compose: Compose) -> Iterator[ShardedClient]:
    """A client of both shards, outside of the containers, by the published port of the gateway."""
    with connect_shards(GATEWAY, shards="a,b", timeout_s=WAIT_S) as client:
        yield client


def shards(compose: Compose, *arguments: str) -> str:
    """Return what a command of shards prints in the gateway's container."""
    return compose("exec", "-T", "gateway", "reput", "shards", *arguments).stdout


def send(client: ShardedClient, topic: str, numbers: range) -> list[SendResult]:
    """Send a message with each number for each key."""
    with client.producer() as producer:
        outcomes: list[Future[SendResult]] = [
            producer.send(topic, b"%d" % number, sharding_key=key, keys=key) for number in numbers for key in KEYS
        ]
        return [outcome.result(WAIT_S) for outcome in outcomes]


def received(client: ShardedClient, topic: str, group: str, count: int) -> dict[str, list[int]]:
    """Receive and acknowledge so many messages, and return the numbers of each key in the order of their receipt."""
    numbers: dict[str, list[int]] = defaultdict(list)
    with client.share_consumer(topic, group=group) as consumer:
        while sum(map(len, numbers.values())) < count:
            for delivery in consumer.receive(count=8, wait_s=WAIT_S):
                numbers[delivery.message.keys[0]].append(int(delivery.message.body))
                consumer.ack(delivery)
    return numbers


def test_both_shards_have_keys(compose: Compose, client: ShardedClient) -> None:
    """A topic has queues at both shards, and a message of each key is found where its key is."""
    shards(compose, "create", "orders")
    send(client, "orders", range(1))
    table = shards(compose, "topic", "orders")
    assert " a " in table
    assert " b " in table
    assert all(len(list(client.query.by_key("orders", key))) == 1 for key in KEYS)


def test_order_through_a_split_and_a_kill(compose: Compose, client: ShardedClient) -> None:
    """Keys keep their order for an ordered group while a queue is split and the log of a shard is killed."""
    shards(compose, "create", "moved")
    compose("exec", "-T", "delivery", "reput", "groups", "set", "readers", "--ordered")
    compose("exec", "-T", "delivery-b", "reput", "groups", "set", "readers", "--ordered")
    send(client, "moved", range(10))
    shards(compose, "split", "moved", "0")
    send(client, "moved", range(10, 20))
    compose("kill", "--signal", "KILL", "commitlog-b")
    start_all(compose)
    send(client, "moved", range(20, 30))
    assert received(client, "moved", "readers", 30 * len(KEYS)) == {key: list(range(30)) for key in KEYS}


def test_a_shard_that_is_stopped_is_named(compose: Compose, client: ShardedClient) -> None:
    """While a shard is stopped, messages without a key go on to the other shard, and `shards list` names the shard."""
    shards(compose, "create", "free")
    compose("stop", "commitlog-b")
    try:
        with client.producer() as producer:
            places = [producer.send("free", b"x").result(WAIT_S) for _ in range(20)]
        assert len({(place.queue_id, place.queue_offset) for place in places}) == 20
        listed = compose("exec", "-T", "gateway", "reput", "shards", "list", must_succeed=False)
        assert "b" in listed.stdout + listed.stderr
    finally:
        start_all(compose)


def test_a_shard_is_drained(compose: Compose, client: ShardedClient) -> None:
    """After a drain the shard has no open queue, and its keys are sent to the other shard."""
    shards(compose, "create", "drained")
    send(client, "drained", range(1))
    compose("exec", "-T", "gateway", "reput", "shards", "drain", "b", must_succeed=False)  # 1: messages are left
    table = [line.split() for line in shards(compose, "topic", "drained").splitlines()[1:]]
    assert {row[1] for row in table if row[2] == "open"} == {"a"}
    send(client, "drained", range(1, 2))
    numbers = received(client, "drained", "cleaners", 2 * len(KEYS))
    assert {key: sorted(found) for key, found in numbers.items()} == {key: [0, 1] for key in KEYS}
