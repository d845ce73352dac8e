# SPDX-License-Identifier: Apache-2.0
"""A topic that is purged, or deleted and created again: readers continue, and get each new message once."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import reput_client
from reput_client import Client

from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, run_here, store

pytestmark = pytest.mark.e2e

OLD_COUNT = 5


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store for all tests. Each test uses its own topics and groups."""
    with store(tmp_path_factory.mktemp("store"), "--delivery", "--delivery-port", "0") as running:
        yield running


@pytest.fixture
def client(running: Store) -> Iterator[Client]:
    with reput_client.connect(**running.targets) as client:
        yield client


class Reader(Protocol):
    """Reads a topic from its first message on, and keeps its position between reads."""

    def read(self, count: int) -> list[str]:
        """Return this many next messages."""


@dataclass
class OpenConsumer:
    """A consumer that stays open."""

    client: Client
    topic: str
    _consumer: Any = None

    def read(self, count: int) -> list[str]:
        self._consumer = self._consumer or self.client.consumer(self.topic, start="earliest")
        return [_body(self._consumer.poll(LIMIT_S)) for _ in range(count)]


@dataclass
class GroupOfOffsets:
    """A consumer that is created anew each time, from the offsets of its group."""

    client: Client
    topic: str

    def read(self, count: int) -> list[str]:
        with self.client.consumer(self.topic, group=f"keeps-{self.topic}", start="earliest") as consumer:
            found = [_body(consumer.poll(LIMIT_S)) for _ in range(count)]
            consumer.commit()
        return found


@dataclass
class SharingGroup:
    """A member of a sharing group, which leaves the group after each read."""

    client: Client
    topic: str
    name: str = "shares"

    def read(self, count: int) -> list[str]:
        found: list[str] = []
        with self.client.share_consumer(self.topic, group=f"{self.name}-{self.topic}") as consumer:
            while len(found) < count:
                for received in consumer.receive(count=count - len(found), wait_s=20):
                    found.append(received.message.body.decode())
                    consumer.ack(received)
        return found


@dataclass
class OwnPlaces:
    """A program that keeps its queue offset itself, as a checkpoint of Spark does."""

    client: Client
    topic: str
    _places: dict[tuple[str, int], int] = field(default_factory=dict)

    def read(self, count: int) -> list[str]:
        with self.client.consumer(self.topic, start="earliest") as consumer:
            for queue, place in self._places.items():
                consumer.seek(queue, place)
            found = [_body(consumer.poll(LIMIT_S)) for _ in range(count)]
            self._places = dict(consumer.positions())
        return found


KINDS: tuple[Callable[[Client, str], Reader], ...] = (OpenConsumer, GroupOfOffsets, SharingGroup, OwnPlaces)


@pytest.mark.parametrize("new_count", [3, 8], ids=["shorter", "longer"])
@pytest.mark.parametrize("is_removed", [False, True], ids=["deleted", "deleted and removed"])
def test_readers_get_each_new_message_once(running: Store, client: Client, *, is_removed: bool, new_count: int) -> None:
    """After a topic is deleted and created again, each reader gets each new message once.

    This is true with and without removed queues, and with fewer or more new messages than it had read before.
    """
    topic = f"again-{is_removed}-{new_count}"
    readers = {kind.__name__: kind(client, topic) for kind in KINDS}
    old = _sent(client, topic, "old", OLD_COUNT)
    assert {name: reader.read(OLD_COUNT) for name, reader in readers.items()} == dict.fromkeys(readers, old)
    running.json("topics", "delete", topic, "--yes")
    if is_removed:
        assert running.json("index", "remove-unused", "--yes")[0]["removed_queue_count"] == 1
    new = _sent(client, topic, "new", new_count)
    assert {name: reader.read(new_count) for name, reader in readers.items()} == dict.fromkeys(readers, new)
    groups = {group["group"]: group for group in running.json("groups", "list")}
    assert [groups[f"{kind}-{topic}"]["lag"] for kind in ("keeps", "shares")] == [0, 0]


def test_messages_of_a_deleted_topic_are_gone(tmp_path: Path) -> None:
    """No reader gets messages of a deleted topic.

    This is true also after the topic is created again, after a restart of all services, and after a rebuild.
    """
    services = "--delivery", "--delivery-port", "0"
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        old = _sent(client, "secret", "old", OLD_COUNT, key="k")
        assert _found(client, "secret") == _in_each_way(old)
        ids = [message.offset_message_id for message in client.query.by_key("secret", "k")]
        running.json("topics", "delete", "secret", "--yes")
        _sent(client, "other", "behind", 1)  # the Indexer hears of the deletion before it
        assert _found(client, "secret") == _in_each_way([])
        new = _sent(client, "secret", "new", 2, key="k")
        assert _found(client, "secret") == _in_each_way(new)
        for message_id in ids:
            with pytest.raises(reput_client.NotFoundError):
                client.query.by_id(message_id)
        for kind in (OpenConsumer, GroupOfOffsets, SharingGroup):
            assert kind(client, "secret").read(len(new)) == new
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        assert _found(client, "secret") == _in_each_way(new)
        assert running.json("index", "rebuild", "--yes")
        assert _found(client, "secret") == _in_each_way(new)
    assert run_here("index", "rebuild", "--data-dir", str(tmp_path), "--yes", "--json").code == 0
    assert run_here("verify", str(tmp_path)).code == 0
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        assert _found(client, "secret") == _in_each_way(new)
        assert SharingGroup(client, "secret", "late").read(len(new)) == new


def test_purged_messages_are_gone(tmp_path: Path) -> None:
    """No reader gets messages of a purged topic; the topic stays and each reader gets each later message once.

    This is true also after a restart of all services, and after a rebuild.
    """
    services = "--delivery", "--delivery-port", "0"
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        running.json("topics", "create", "audit", "--read-queues", "3", "--write-queues", "3")
        old = _sent(client, "audit", "old", OLD_COUNT, key="k")
        assert _found(client, "audit") == _in_each_way(old)
        ids = [message.offset_message_id for message in client.query.by_key("audit", "k")]
        readers = [kind(client, "audit") for kind in KINDS]
        assert [reader.read(OLD_COUNT) for reader in readers] == [old] * len(readers)
        unread = _sent(client, "audit", "unread", 3, key="k")
        assert readers[0].read(len(unread)) == unread  # an open consumer keeps what it has fetched
        assert running.run("topics", "purge", "audit").code == 2
        assert _found(client, "audit") == _in_each_way(old + unread)
        assert running.json("topics", "purge", "audit", "--yes") == [{"purged": "audit"}]
        _eventually_found(client, "audit", [])
        assert running.json("topics", "get", "audit")[0]["write_queue_count"] == 3
        assert {group["lag"] for group in running.json("groups", "list")} == {0}
        new = _sent(client, "audit", "new", 2, key="k")
        assert client.queues.range("audit", 0).min_queue_offset == OLD_COUNT + 3
        assert _found(client, "audit") == _in_each_way(new)
        for message_id in ids:
            with pytest.raises(reput_client.NotFoundError):
                client.query.by_id(message_id)
        assert [reader.read(len(new)) for reader in readers] == [new] * len(readers)
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        assert _found(client, "audit") == _in_each_way(new)
        assert running.json("index", "rebuild", "--yes")
        assert _found(client, "audit") == _in_each_way(new)
    assert run_here("index", "rebuild", "--data-dir", str(tmp_path), "--yes", "--json").code == 0
    assert run_here("verify", str(tmp_path)).code == 0
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        assert _found(client, "audit") == _in_each_way(new)
        assert SharingGroup(client, "audit", "late").read(len(new)) == new


def test_a_message_that_is_being_consumed_is_purged(running: Store, client: Client) -> None:
    """A message that a member holds at the purge does not come again; the next message does."""
    _sent(client, "held", "old", 2)
    with client.share_consumer("held", group="holds") as consumer:
        held = list(consumer.receive(count=1, wait_s=LIMIT_S))
        running.json("topics", "purge", "held", "--yes")
        _eventually_found(client, "held", [])
        for received in held:
            consumer.nack(received)
        new = _sent(client, "held", "new", 1)
        found = list(consumer.receive(count=1, wait_s=LIMIT_S))
        assert [_body(received.message) for received in found] == new


def test_a_group_gets_what_is_in_any_queue(running: Store, client: Client) -> None:
    """A group gets messages of queues above the number of queues to read.

    This is true also above both numbers after they were reduced, and its lag has these messages.
    """
    running.json("topics", "create", "wide", "--read-queues", "2", "--write-queues", "8")
    reader = SharingGroup(client, "wide")
    high = _sent(client, "wide", "high", 1, queue_id=7)
    assert reader.read(1) == high
    running.json("topics", "update", "wide", "--read-queues", "1", "--write-queues", "7")
    later = _sent(client, "wide", "low", 1, queue_id=6)
    assert "warning" in running.run("topics", "update", "wide", "--write-queues", "2").errors
    (group,) = running.json("groups", "show", "shares-wide")
    assert group["lag"] == 1
    assert reader.read(1) == later


WAYS = ("pull", "key", "time")


def _in_each_way(bodies: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(WAYS, bodies)


def _found(client: Client, topic: str) -> dict[str, list[str]]:
    """Return the messages of queue 0 by each way to read. All have the key k. The topic may be missing."""

    def pulled() -> Iterable[Any]:
        return client.queues.pull(topic, 0, client.queues.range(topic, 0).min_queue_offset).messages

    ways = pulled, lambda: client.query.by_key(topic, "k"), lambda: client.query.by_time(topic)
    found = {}
    for name, way in zip(WAYS, ways, strict=True):
        try:
            found[name] = sorted(_body(message) for message in way())
        except reput_client.NotFoundError:
            found[name] = []
    return found


def _eventually_found(client: Client, topic: str, bodies: list[str]) -> None:
    """Wait until each way to read finds these messages in queue 0."""
    end_s = time.monotonic() + LIMIT_S
    while _found(client, topic) != _in_each_way(bodies):
        assert time.monotonic() < end_s
        time.sleep(0.02)


def _sent(client: Client, topic: str, name: str, count: int, *, queue_id: int = 0, key: str = "") -> list[str]:
    """Send messages, wait until readers can see them, and return their bodies."""
    bodies = [f"{name}{number}" for number in range(count)]
    with client.producer() as producer:
        sent = [producer.send(topic, body.encode(), queue_id=queue_id, keys=[key] if key else []) for body in bodies]
    client.query.wait_indexed(sent[-1].result())
    return bodies


def _body(message: Any) -> str:
    assert message is not None
    return str(message.body.decode())
