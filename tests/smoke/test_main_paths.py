# SPDX-License-Identifier: Apache-2.0
"""Each main path through real services, once. tests/e2e, tests/spark and tests/crash attack its promises."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import reput_client
from reput_client import NewMessage

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.smoke.conftest import SmokeStore
from tests.support.patience import LIMIT_S
from tests.support.reput_up import run_here
from tests.support.served_gateway import Caller, named


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def sent(client: reput_client.Client, topic: str, *bodies: bytes, key: str = "") -> list[reput_client.SendResult]:
    """Send bodies to the first queue of a topic, and wait until queries find them."""
    keys = [key] if key else []
    with client.producer() as producer:
        results = [producer.send(topic, body, queue_id=0, keys=keys) for body in bodies]
    outcomes = [result.result() for result in results]
    client.query.wait_indexed(outcomes[-1])
    return outcomes


def test_append_and_query_by_key_time_and_id(client: reput_client.Client) -> None:
    """An acknowledged message is on the disk, and found by its key, its store time and both ids."""
    (result,) = sent(client, "orders", b"hello", key="k1")
    assert result.durability.name == "LOCAL_DISK"
    (by_key,) = client.query.by_key("orders", "k1")
    assert by_key.body == b"hello"
    stored_ms = int(by_key.store_time.timestamp() * 1000)
    (by_time,) = client.query.by_time("orders", start=stored_ms, end=stored_ms + 1)
    assert by_time.unique_id == result.unique_id
    assert client.query.by_id(result.unique_id, topic="orders").body == b"hello"
    assert client.query.by_id(result.offset_message_id).body == b"hello"


def test_pull_in_order(client: reput_client.Client) -> None:
    """A pull returns the messages of a queue in the order in which they were stored."""
    bodies = [b"%d" % number for number in range(100)]
    sent(client, "pulled", *bodies)
    pulled = client.queues.pull("pulled", 0, 0, count=100)
    assert [message.body for message in pulled.messages] == bodies


def test_a_writer_s_batch_is_stored_once(client: reput_client.Client) -> None:
    """The same batch under the same number, sent by a second process, is not stored again."""
    for _ in range(2):
        with client.writer("import", first_sequence=0) as writer:
            writer.append([NewMessage("imported", b"%d" % number, queue_id=0) for number in range(3)])
    sent(client, "imported", b"last")
    assert _bodies(client, "imported") == [b"0", b"1", b"2", b"last"]


def test_a_consumer_goes_on_where_its_group_committed(client: reput_client.Client) -> None:
    """The second consumer of a group begins after the message that the first consumer committed."""
    sent(client, "read", b"a", b"b")
    for expected in (b"a", b"b"):
        with client.consumer("read", group="readers", start="earliest") as consumer:
            message = consumer.poll(LIMIT_S)
            assert message is not None
            assert message.body == expected
            consumer.commit()


def test_receive_settle_and_dead_letters(client: reput_client.Client) -> None:
    """An acknowledged message is not delivered again, and a buried message is among the dead letters."""
    sent(client, "work", b"good", b"bad")
    with client.share_consumer("work", group="workers") as consumer:
        received = consumer.receive(count=2, wait_s=20)
        while len(received) < 2:
            received += consumer.receive(count=2 - len(received), wait_s=20)
        good, bad = sorted(received, key=lambda delivery: delivery.message.body, reverse=True)
        consumer.ack(good)
        consumer.bury(bad)
        assert consumer.receive(count=1, wait_s=0.2) == []
    until(lambda: [letter.message.body for letter in client.dead_letters.list("workers")] == [b"bad"])


def test_a_delayed_message_waits(client: reput_client.Client) -> None:
    """A delayed message is in its topic after its delay, and not before."""
    sent_s = time.monotonic()
    with client.producer() as producer:
        producer.send("later", b"x", queue_id=0, delay_s=1.0).result()
    until(lambda: _bodies(client, "later") == [b"x"])
    assert time.monotonic() - sent_s > 0.9


def _bodies(client: reput_client.Client, topic: str, queue_id: int = 0) -> list[bytes]:
    try:
        return [message.body for message in client.queues.pull(topic, queue_id, 0).messages]
    except reput_client.NotFoundError:
        return []


def test_a_transaction_is_seen_when_it_commits(client: reput_client.Client) -> None:
    """A half message is hidden until its producer commits, and is never visible after a rollback."""
    with client.transactions.begin("paid", b"yes", group="shop"):
        assert _bodies(client, "paid") == []
    with pytest.raises(ZeroDivisionError), client.transactions.begin("paid", b"no", group="shop"):
        raise ZeroDivisionError
    until(lambda: _all_bodies(client, "paid") != [])
    assert _all_bodies(client, "paid") == [b"yes"]


def _all_bodies(client: reput_client.Client, topic: str) -> list[bytes]:
    return [body for queue in client.queues.list(topic) for body in _bodies(client, topic, queue.queue_id)]


async def test_the_gateway_sends_and_receives(store: SmokeStore, client: reput_client.Client) -> None:
    """A message that is sent by RocketMQ 5's protocol is received, and acknowledged."""
    client.topics.create("rocket")
    async with grpc.aio.insecure_channel(store.gateway.target) as channel:
        caller = Caller(channel)
        assert (await caller.send("rocket")).status.code == wire.CODE_OK
        (message,) = await caller.receive("rocket", "rockets")
        entry = wire.AckMessageEntry(
            message_id=message.system_properties.message_id, receipt_handle=message.system_properties.receipt_handle
        )
        request = wire.AckMessageRequest(group=named("rockets"), topic=named("rocket"), entries=[entry])
        assert (await caller.call("AckMessage", request)).status.code == wire.CODE_OK


def test_a_follower_has_what_the_leader_has(store: SmokeStore, client: reput_client.Client) -> None:
    """The follower's log has the leader's bytes, up to its own end."""
    (result,) = sent(client, "copied", b"x")
    with reput_client.connect(commitlog=store.follower.target, indexer=store.indexer.target) as copy:
        until(lambda: copy.admin.commitlog_status().max_physical_offset > result.physical_offset)
    name = f"{0:020d}"
    leader, follower = (Path(service.data_dir) / "commitlog" / name for service in (store.log, store.follower))
    end = result.physical_offset + 1
    assert leader.read_bytes()[:end] == follower.read_bytes()[:end]


@pytest.mark.parametrize("service", ["log", "indexer", "delivery"])
def test_a_service_that_is_killed_comes_back(store: SmokeStore, client: reput_client.Client, service: str) -> None:
    """All messages that were acknowledged before a SIGKILL are found after it, and the path continues to work."""
    topic = f"killed-{service}"
    sent(client, topic, b"before", key="k")
    getattr(store, service).kill()
    sent(client, topic, b"after", key="k")
    assert sorted(message.body for message in client.query.by_key(topic, "k")) == [b"after", b"before"]
    with client.share_consumer(topic, group=topic) as consumer:
        until(lambda: _received_all(consumer, {b"before", b"after"}))


def _received_all(consumer: reput_client.ShareConsumer, bodies: set[bytes]) -> bool:
    for received in consumer.receive(count=10, wait_s=1):
        bodies.discard(received.message.body)
        consumer.ack(received)
    return not bodies


def test_the_command_line(store: SmokeStore) -> None:
    """`put`, `pull`, `status`, `health` and a dry run of the Janitor have their exit codes."""
    assert store.run("put", "shell", "hi", "--queue", "0").code == 0
    until(lambda: store.run("pull", "shell", "--queue", "0", "--raw").output == "hi\n")
    for arguments in (("status",), ("health",), ("janitor", "run", "--dry-run"), ("groups", "list")):
        result = store.run(*arguments)
        assert result.code == 0, result
    assert store.run("topics", "get", "nothing-like-it").code != 0


def test_spark_reads_a_topic(store: SmokeStore, client: reput_client.Client) -> None:
    """`spark.read.format("reput")` reads each message once."""
    from pyspark.sql import SparkSession

    sent(client, "sparkling", *[b"%d" % number for number in range(50)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        with builder.getOrCreate() as spark:
            spark.sparkContext.setLogLevel("OFF")
            options = {"endpoint": store.indexer.target, "subscribe": "sparkling"}
            rows = spark.read.format("reput").options(**options).load().collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(b"%d" % number for number in range(50))


def test_verify_finds_a_stopped_store_sound(store: SmokeStore) -> None:
    """After an orderly stop `reput verify` finds no fault, and the store starts again."""
    store.indexer.stop()
    store.log.stop()
    result = run_here("verify", str(store.log.data_dir), "--index-dir", str(store.indexer.data_dir))
    assert result.code == 0, result
    store.log.start()
    store.indexer.start()
