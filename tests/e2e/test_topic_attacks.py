# SPDX-License-Identifier: Apache-2.0
"""Purges and deletions at the worst moments: during appends, at once, between plan and read, while messages wait."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import reput_client
from reput_client import Client, ConsumerOffset
from reput_spark.errors import CallFailed, DataLoss
from reput_spark.read.options import parse
from reput_spark.read.plan import plan
from reput_spark.read.scan import read

from libs.runtime.trust.tokens import find_local_token
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e

SENT_COUNT, CALLERS = 300, 8
DELAY_S = 6


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store. Each test uses its own topics and groups."""
    with store(tmp_path_factory.mktemp("store"), "--delivery", "--delivery-port", "0") as running:
        yield running


@pytest.fixture
def client(running: Store) -> Iterator[Client]:
    """A client of an operator."""
    with reput_client.connect(token=find_local_token(running.targets.values()), **running.targets) as client:
        yield client


def _send(client: Client, topic: str, *bodies: str, queue_id: int = 0, **fields: Any) -> list[Any]:
    """Send messages, and wait until readers can see them. Return their places."""
    with client.producer() as producer:
        sent = [producer.send(topic, body.encode(), queue_id=queue_id, **fields) for body in bodies]
    results = [future.result() for future in sent]
    client.query.wait_indexed(results[-1])
    return results


def _shown(client: Client, topic: str) -> list[str]:
    """The bodies of all messages that readers get, by queue and offset."""
    found: list[str] = []
    for queue in client.queues.list(topic):
        offset = queue.min_queue_offset
        while offset < queue.max_queue_offset:
            pulled = client.queues.pull(topic, queue.queue_id, offset)
            found += [message.body.decode() for message in pulled.messages]
            offset = pulled.next_queue_offset
    return found


def _eventually(look: Callable[[], Any], expected: Any) -> None:
    end_s = time.monotonic() + LIMIT_S
    while (found := look()) != expected:
        assert time.monotonic() < end_s, (found, expected)
        time.sleep(0.02)


def test_a_purge_during_appends(running: Store, client: Client) -> None:
    """Messages acknowledged before the call are gone, messages sent after its answer stay, and no queue has a hole."""
    before: list[str] = []
    is_over = threading.Event()

    def append() -> list[str]:
        with client.producer() as producer:
            for number in range(10_000):
                producer.send("busy", b"%d" % number, queue_id=0).result()
                before.append(str(number))
                if is_over.is_set():
                    break
        return before

    with ThreadPoolExecutor() as pool:
        appending = pool.submit(append)
        for _ in range(3):
            while len(before) < 20:
                time.sleep(0.01)
            acknowledged = set(before)
            running.json("topics", "purge", "busy", "--yes")
            after_count = len(before)
        is_over.set()
        sent = appending.result()
    client.query.wait_indexed(_send(client, "busy", "last")[-1])
    shown = _shown(client, "busy")
    assert shown == [*sent, "last"][-len(shown) :]
    assert not acknowledged & set(shown)
    assert len(sent) - after_count - 1 <= len(shown) - 1  # one message may have been under way


def test_many_callers_at_once(running: Store, client: Client) -> None:
    """All of several purges at once succeed, and a single deletion does; other deletions find no topic."""
    _send(client, "crowd", *map(str, range(20)))
    with ThreadPoolExecutor(CALLERS) as pool:
        assert list(pool.map(lambda _: client.topics.purge("crowd"), range(CALLERS))) == [None] * CALLERS
    _eventually(lambda: _shown(client, "crowd"), [])
    _send(client, "crowd", "kept")
    assert _shown(client, "crowd") == ["kept"]

    def delete(_: int) -> str:
        try:
            client.topics.delete("crowd")
        except reput_client.NotFoundError as error:
            return str(error.reason)
        return ""

    with ThreadPoolExecutor(CALLERS) as pool:
        outcomes = sorted(pool.map(delete, range(CALLERS)))
    assert outcomes == ["", *["TOPIC_NOT_FOUND"] * (CALLERS - 1)]
    _send(client, "crowd", "again")
    assert _shown(client, "crowd") == ["again"]


def test_a_topic_is_made_again_with_fewer_queues(running: Store, client: Client) -> None:
    """A group that has places in all four queues gets each new message of the two queues once, and has no lag."""
    running.json("topics", "create", "shrunk", "--queues", "4")
    for queue_id in range(4):
        _send(client, "shrunk", f"old{queue_id}", queue_id=queue_id)
    with client.consumer("shrunk", group="reads-shrunk", start="earliest") as consumer:
        first = consumer.poll(LIMIT_S)
        consumer.commit()
        assert first is not None
        running.json("topics", "delete", "shrunk", "--yes")
        running.json("topics", "create", "shrunk", "--queues", "2")
        with pytest.raises(reput_client.ReputError):
            _send(client, "shrunk", "lost", queue_id=3)
        for queue_id in range(2):
            _send(client, "shrunk", f"new{queue_id}", queue_id=queue_id)
        found: list[str] = []
        while {"new0", "new1"} - set(found):  # it may have fetched messages before the deletion
            message = consumer.poll(LIMIT_S)
            assert message is not None
            found.append(message.body.decode())
        consumer.commit()
    assert [body for body in found if body.startswith("new")] in (["new0", "new1"], ["new1", "new0"])
    with client.share_consumer("shrunk", group="shares-shrunk") as sharing:
        got: list[str] = []
        while len(got) < 2:
            for received in sharing.receive(count=2 - len(got), wait_s=20):
                got.append(received.message.body.decode())
                sharing.ack(received)
    assert sorted(got) == ["new0", "new1"]
    lags = {group["group"]: group["lag"] for group in running.json("groups", "list")}
    assert (lags["reads-shrunk"], lags["shares-shrunk"]) == (0, 0)


def test_spark_in_the_middle_of_a_purge(running: Store, client: Client) -> None:
    """A plan whose messages are purged before they are read fails, or reads the rest with failOnDataLoss=false."""
    _send(client, "scanned", *map(str, range(SENT_COUNT)))

    def bodies(planned: Any, options: dict[str, str]) -> list[bytes]:
        parsed = parse(options)
        batches = [batch for part in planned for batch in read(parsed, ("value",), part)]
        return [row["value"] for batch in batches for row in batch.to_pylist()]

    strict = {"endpoint": running.targets["indexer"], "subscribe": "scanned", "retryIntervalMs": "10"}
    lenient = strict | {"failOnDataLoss": "false"}
    planned = plan(parse(strict))
    assert len(bodies(planned, strict)) == SENT_COUNT
    running.json("topics", "purge", "scanned", "--yes")
    _eventually(lambda: _shown(client, "scanned"), [])
    with pytest.raises(CallFailed, match=rf"OFFSET_TRIMMED.* 0 is gone, the oldest that is kept is {SENT_COUNT}"):
        bodies(planned, strict)
    assert bodies(planned, lenient) == []
    _send(client, "scanned", "new")
    named = {"startingOffsets": json.dumps({"scanned": {"0": 5}})}
    with pytest.raises(DataLoss, match=r"\[300, 301\]"):
        plan(parse(strict | named))
    assert bodies(plan(parse(lenient | named)), lenient) == [b"new"]
    assert bodies(plan(parse(strict)), strict) == [b"new"]  # a query without offsets begins at the first message


def test_messages_that_wait_elsewhere(running: Store, client: Client) -> None:
    """A delayed message, a half message and a dead letter are not messages of the topic yet: a purge leaves them."""
    _send(client, "parts", "plain", "dies")
    with client.share_consumer("parts", group="buries") as consumer:
        held = []
        while len(held) < 2:
            held += list(consumer.receive(count=2 - len(held), wait_s=20))
        consumer.ack(held[0])
        consumer.bury(held[1])
    with client.producer() as producer:
        producer.send("parts", b"delayed", queue_id=0, delay_s=5).result()
    half = client.transactions.begin("parts", b"half", group="shop", check_after_s=600, queue_id=0)
    rolled = client.transactions.begin("parts", b"never", group="shop", check_after_s=600, queue_id=0)
    running.json("topics", "purge", "parts", "--yes")
    _eventually(lambda: _shown(client, "parts"), [])
    half.commit()
    rolled.rollback()
    _eventually(lambda: sorted(_shown(client, "parts")), ["delayed", "half"])
    assert [row["body"] for row in running.json("dlq", "list", "buries")] == ["dies"]
    running.json("dlq", "replay", "buries")
    _eventually(lambda: sorted(_shown(client, "parts")), ["delayed", "dies", "half"])


def test_messages_that_wait_for_a_deleted_topic(running: Store, client: Client) -> None:
    """A delayed message and a half message create a deleted topic again where appends create topics."""
    _send(client, "parted", "plain")
    with client.producer() as producer:
        producer.send("parted", b"delayed", queue_id=0, delay_s=4).result()
    half = client.transactions.begin("parted", b"half", group="shop", check_after_s=600, queue_id=0)
    running.json("topics", "delete", "parted", "--yes")
    half.commit()

    def found() -> list[str]:
        try:
            return sorted(_shown(client, "parted"))
        except reput_client.NotFoundError:
            return []

    _eventually(found, ["delayed", "half"])
    assert running.json("topics", "get", "parted")[0]["name"] == "parted"


def test_messages_that_wait_for_a_topic_that_no_append_creates(tmp_path: Path) -> None:
    """Where appends create no topics, a delayed message waits until the topic is created again, and then comes once."""
    no_creation = {"REPUT_COMMITLOG_AUTO_CREATE_TOPICS": "false"}
    with (
        store(tmp_path, "--delivery", "--delivery-port", "0", extra=no_creation) as running,
        reput_client.connect(**running.targets) as client,
    ):
        running.json("topics", "create", "closed")
        with client.producer() as producer:
            producer.send("closed", b"delayed", queue_id=0, delay_s=DELAY_S).result()
            sent_s = time.time()
        running.json("topics", "delete", "closed", "--yes")
        _eventually(lambda: _waiting(running), ["closed"])
        while time.time() < sent_s + DELAY_S + 2:
            time.sleep(0.1)
        assert running.run("topics", "get", "closed").code == 3
        assert _waiting(running) == ["closed"]
        running.json("topics", "create", "closed")
        _eventually(lambda: _count(client, "closed"), 1)
        _send(client, "closed", "later")
        assert sorted(_shown(client, "closed")) == ["delayed", "later"]


def test_the_question_names_groups_with_unread_messages(running: Store, client: Client) -> None:
    """The question before a purge or deletion names them, and is asked without a Delivery, too."""
    _send(client, "asked", *map(str, range(5)))
    client.groups.commit("slow", [ConsumerOffset("asked", 0, 3)])
    for verb in ("purge", "delete"):
        refused = running.run("topics", verb, "asked")
        assert (refused.code, "5 messages in 1 queue, 1 group (slow) has 2 unread messages" in refused.errors) == (
            2,
            True,
        ), refused
    refused = running.run("--delivery", "127.0.0.1:1", "topics", "purge", "asked")
    assert "5 messages in 1 queue; no reader gets them any more" in refused.errors
    assert len(_shown(client, "asked")) == 5


def _waiting(running: Store) -> list[str]:
    """The topics of delayed messages that wait."""
    return [row["topic"] for row in running.run("delay", "list", "--json").rows]


def _count(client: Client, topic: str) -> int:
    return sum(queue.max_queue_offset - queue.min_queue_offset for queue in client.queues.list(topic))


def test_a_place_beyond_the_end(running: Store, client: Client) -> None:
    """A stored offset beyond the end, as of a queue that RocketMQ made again, skips nothing and has no lag below 0."""
    _send(client, "ahead", "a", "b")
    client.groups.commit("jumps", [ConsumerOffset("ahead", 0, 999)])
    (group,) = [one for one in running.json("groups", "list") if one["group"] == "jumps"]
    assert group["lag"] == 0
    refused = running.run("groups", "commit", "jumps", "ahead", "--queue", "0", "--offset", "999")
    assert "OFFSET_BEYOND_END" in refused.errors
    with client.consumer("ahead", group="jumps", start="earliest") as consumer:
        _send(client, "ahead", "c")
        message = consumer.poll(LIMIT_S)
        assert message is not None
        assert message.body == b"c"
    with client.share_consumer("ahead", group="jumps-too") as sharing:
        assert [one.message.body for one in sharing.receive(count=1, wait_s=20)] == [b"a"]
