# SPDX-License-Identifier: Apache-2.0
"""The client against a real store: round trips, both sides, and a CommitLog that is killed while messages are sent."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import reput_client
from reput_client import NewMessage, ProducerOptions, SendResult, aio

from clients.python.tests.support import LIMIT_S
from tests.support.reput_up import Store, environment
from tests.support.surroundings import free_port

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).resolve().parents[3] / "clients/python/examples"


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_indexed(client: reput_client.Client) -> bool:
    end_physical_offset = client.admin.commitlog_status().max_physical_offset
    return client.admin.indexer_status().indexed_physical_offset >= end_physical_offset


def test_what_was_waited_for_is_found_at_once(client: reput_client.Client, running: Store) -> None:
    """A query after the wait finds the message, with both kinds of clients."""

    async def find(number: int) -> list[bytes]:
        async with aio.connect(**running.targets) as other, other.producer(options) as producer:
            sent = await (await producer.send("at-once", b"async", keys=f"async-{number}"))
            await other.query.wait_indexed(sent)
            return [message.body async for message in other.query.by_key("at-once", f"async-{number}")]

    options = ProducerOptions(linger_ms=0)
    with client.producer(options) as producer:
        for number in range(20):
            sent = producer.send("at-once", b"sync", keys=f"sync-{number}").result(LIMIT_S)
            client.query.wait_indexed(sent)
            assert [message.body for message in client.query.by_key("at-once", f"sync-{number}")] == [b"sync"]
            assert asyncio.run(find(number)) == [b"async"]


def test_a_wait_for_what_nobody_sends_says_how_far_it_is(client: reput_client.Client, running: Store) -> None:
    """A wait for a message that was never sent ends within the client's time-out.

    The error has the offset that is indexed and the offset that was waited for.
    """
    with client.producer() as producer:
        sent = producer.send("nobody", b"x").result(LIMIT_S)
    client.query.wait_indexed(sent)
    beyond = sent.physical_offset + (1 << 40)
    with reput_client.connect(**running.targets, timeout_s=2.0) as hasty:
        with pytest.raises(reput_client.UnavailableError) as caught:
            hasty.query.wait_indexed(sent._replace(physical_offset=beyond))
        with pytest.raises(reput_client.InvalidArgumentError, match="physical_offset"):
            hasty.query.wait_indexed(sent._replace(physical_offset=-1))
    assert (caught.value.reason, caught.value.metadata["target"]) == ("RECOVERING", str(beyond + 1))
    assert sent.physical_offset < int(caught.value.metadata["indexed"]) <= beyond


def test_round_trip(client: reput_client.Client) -> None:
    """All sent messages come back equal, by every way to ask, and a bad message in a batch fails alone."""
    messages = [
        NewMessage(
            "round", f"body {number}".encode(), tag=f"T{number % 3}", keys=(f"k{number}", "all"), queue_id=number % 4,
            properties={"größe": str(number)}, flag=number, born_time_ms=1_000_000 + number,
        )
        for number in range(3000)
    ]  # fmt: skip
    messages[1234].queue_id = 4444
    with client.producer(ProducerOptions(batch_size_bytes=64 << 10)) as producer:
        outcomes = producer.send_batch(messages).result(LIMIT_S)
    refused = outcomes.pop(1234)
    del messages[1234]
    assert isinstance(refused, reput_client.ReputError)
    assert refused.reason == "QUEUE_OUT_OF_RANGE"
    wait_for(lambda: is_indexed(client))
    found = {message.physical_offset: message for message in client.query.by_time("round", page_size=1000)}
    assert len(found) == len(messages)
    for sent, outcome in zip(messages, outcomes, strict=True):
        assert isinstance(outcome, SendResult)
        message = found[outcome.physical_offset]
        assert (message.body, message.tag, message.keys, message.queue_id) == (
            sent.body, sent.tag, sent.keys, sent.queue_id,
        )  # fmt: skip
        assert (message.properties["größe"], message.flag, message.born_time_ms) == (
            sent.properties["größe"], sent.flag, sent.born_time_ms,
        )  # fmt: skip
        assert (message.queue_offset, message.unique_id) == (outcome.queue_offset, outcome.unique_id)
        assert message.offset_message_id == outcome.offset_message_id
    by_key = list(client.query.by_key("round", "all", page_size=500))
    assert [message.physical_offset for message in by_key] == sorted(found, reverse=True)
    with client.consumer("round", tags="T1") as consumer:
        expected = sum(message.tag == "T1" for message in messages)
        consumed = [consumer.poll(LIMIT_S) for _ in range(expected)]
    assert {message.tag for message in consumed if message} == {"T1"}
    assert len(set(consumed)) == expected


async def test_properties_decide(client: reput_client.Client, running: Store) -> None:
    """A consumer gets the few of many messages that match the condition, and commits behind all of them.

    Pulls and queries return the same messages.
    """
    with client.producer() as producer:
        prices = [{"price": str(number)} for number in range(20_000)]
        messages = [NewMessage("sieved", b"", queue_id=0, properties=price) for price in prices]
        outcomes = producer.send_batch(messages).result(LIMIT_S)
    wait_for(lambda: is_indexed(client))
    sent = [outcome.queue_offset for outcome in outcomes if isinstance(outcome, SendResult)]
    where, expected = "price BETWEEN 15000 AND 15002 OR price = 19998", sorted([*sent[15_000:15_003], sent[19_998]])
    with client.consumer("sieved", group="sieved", where=where) as consumer:
        found = [consumer.poll(LIMIT_S) for _ in expected]
        assert [message.queue_offset for message in found if message] == expected
        while consumer.positions()["sieved", 0] != 20_000:
            assert consumer.poll(0.05) is None
        consumer.commit()
    assert client.groups.get("sieved", "sieved", 0).queue_offset == 20_000
    async with aio.connect(**running.targets) as other, other.consumer("sieved", where=where) as follower:
        assert [(await follower.poll(LIMIT_S)).queue_offset for _ in expected] == expected  # type: ignore[union-attr]
    assert [message.queue_offset for message in client.query.by_time("sieved", where=where)] == expected
    position, pulled = 0, []
    while position < 20_000:
        result = client.queues.pull("sieved", 0, position, where=where)
        pulled += [message.queue_offset for message in result.messages]
        position = result.next_queue_offset
    assert pulled == expected
    with pytest.raises(reput_client.InvalidArgumentError, match="at character 7") as caught:
        client.queues.pull("sieved", 0, 0, where="price ==")
    assert caught.value.metadata["field"] == "where"


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
async def test_compressed_bodies(client: reput_client.Client, running: Store, codec: str) -> None:
    """Compressed bodies are small in the store, and every way to ask and the command line return them inflated."""
    topic, body = f"packed-{codec}", b"".join(b"line %d\n" % number for number in range(10_000))
    with client.producer(ProducerOptions(compression=codec)) as producer:
        result = producer.send(topic, body, keys="k", queue_id=0).result(LIMIT_S)
        producer.send(topic, b"short", queue_id=0).result(LIMIT_S)
    with client.consumer(topic) as consumer:
        message, short = consumer.poll(LIMIT_S), consumer.poll(LIMIT_S)
    assert (message.body, short.body, short.sys_flag) == (body, b"short", 0)
    assert message.record_size_bytes < len(message.raw_body) + 200 < len(body) / 2
    assert client.queues.pull(topic, 0, 0).messages[0].body == body
    assert client.query.by_id(result.offset_message_id).body == body
    assert next(client.query.by_key(topic, "k")).body == body
    assert next(client.query.by_time(topic)).body == body
    async with aio.connect(**running.targets) as other:
        assert (await other.query.by_id(result.unique_id, topic=topic)).body == body
        async with other.consumer(topic) as consumer:
            assert (await consumer.poll(LIMIT_S)).body == body
    for command in (("pull", topic), ("tail", topic), ("query", "key", topic, "k")):
        assert running.json(*command)[0]["body"].encode() == body
    assert running.run("query", "id", result.offset_message_id, "--raw").output.encode() == body + b"\n"


def test_group_goes_on(client: reput_client.Client) -> None:
    """A group's second consumer begins where the first consumer committed."""
    with client.producer() as producer:
        messages = [NewMessage("grouped", str(number).encode(), queue_id=0) for number in range(10)]
        producer.send_batch(messages).result(LIMIT_S)
    with client.consumer("grouped", group="g") as consumer:
        first = [consumer.poll(LIMIT_S) for _ in range(4)]
        consumer.commit()
    with client.consumer("grouped", group="g") as consumer:
        second = [consumer.poll(LIMIT_S) for _ in range(6)]
    assert [message.body for message in first + second if message] == [str(number).encode() for number in range(10)]
    assert client.groups.get("g", "grouped", 0).queue_offset == 4


async def test_asyncio(running: Store) -> None:
    """The asyncio client sends, queries and consumes."""
    async with aio.connect(**running.targets) as client:
        producer = client.producer()
        futures = [await producer.send("async", str(number).encode(), keys=f"k{number}") for number in range(100)]
        results = [await future for future in futures]
        async with client.consumer("async") as consumer:
            bodies = {(await consumer.poll(LIMIT_S)).body for _ in range(100)}
        assert bodies == {str(number).encode() for number in range(100)}
        (found,) = [message async for message in client.query.by_key("async", "k42")]
        assert found.physical_offset == results[42].physical_offset
        assert await client.query.by_id(results[7].offset_message_id) == await client.query.by_id(
            results[7].unique_id, topic="async"
        )


@pytest.mark.crash
def test_a_killed_commitlog_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """The CommitLog is killed during sends and started again.

    Every message is stored in the end.
    """
    command = [sys.executable, "-m", "services.commitlog", "--data-dir", str(tmp_path), "--metrics-port", "0"]
    port = str(free_port())
    with reput_client.connect(commitlog=f"127.0.0.1:{port}") as client, client.producer() as producer:
        futures = []
        for _ in range(3):
            with subprocess.Popen([*command, "--port", port], env=environment(), stderr=subprocess.DEVNULL) as process:
                wait_for(lambda: _is_serving(client))
                futures += [producer.send("killed", str(number).encode()) for number in range(2000)]
                futures[-2000].result(LIMIT_S)
                os.kill(process.pid, signal.SIGKILL)
        with subprocess.Popen([*command, "--port", port], env=environment(), stderr=subprocess.DEVNULL) as process:
            results = [future.result(LIMIT_S) for future in futures]
            end_physical_offset = client.admin.commitlog_status().max_physical_offset
            process.terminate()
    offsets = {result.physical_offset for result in results}
    assert len(offsets) == 6000
    assert max(offsets) < end_physical_offset


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("send_and_query.py", "order 7"),
        ("consume.py", "order 3"),
        ("frames_read_write.py", 'order-7: [b\'{"amount": 7, "city": "Bonn"}\']'),
    ],
)
def test_examples(running: Store, name: str, text: str) -> None:
    """The examples run unchanged, in turn."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        env=environment(running.client_environment()),
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert text in done.stdout


def _is_serving(client: reput_client.Client) -> bool:
    try:
        client.admin.commitlog_status()
    except reput_client.UnavailableError:
        return False
    return True


def test_a_program_that_forgets_to_close(client: reput_client.Client, running: Store) -> None:
    """The messages in an open producer are sent when the program ends."""
    program = (
        "from reput_client import ProducerOptions, connect\n"
        "producer = connect().producer(ProducerOptions(linger_ms=60_000))\n"
        "producer.send('left-open', b'last', keys='last', queue_id=0)\n"
    )
    variables = environment(running.client_environment())
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=LIMIT_S)
    wait_for(lambda: [message.body for message in client.query.by_key("left-open", "last")] == [b"last"])


def test_a_program_that_ends_without_a_store() -> None:
    """A program that ends without a store gets a warning about messages without an outcome."""
    program = (
        "from reput_client import connect\n"
        f"producer = connect(commitlog='127.0.0.1:{free_port()}', timeout_s=0.5).producer()\n"
        "producer.send('t', b'last')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert "a producer was closed before 1 of its messages had an outcome" in done.stderr
