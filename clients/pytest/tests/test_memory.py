# SPDX-License-Identifier: Apache-2.0
"""The fixture `reput`: its clock, planned refusals, crashes and settings."""

import threading
import time
from datetime import timedelta

import pytest
import reput_client
from pytest_reput import MemoryReput
from reput_client import RetryPolicy, SharePolicy

WAIT_S = 25.0
SHORT_S = 0.2
NO_RETRY = RetryPolicy(retries=0)


def send(client: reput_client.Client, topic: str, body: bytes = b"x", **fields: object) -> reput_client.SendResult:
    """Send a message and return its result."""
    with client.producer() as producer:
        return producer.send(topic, body, **fields).result()  # type: ignore[arg-type]


def consumer_of(store: MemoryReput, topic: str, **policy: object) -> reput_client.ShareConsumer:
    """Return a consumer of a new group."""
    group = store.name("group")
    store.client().share_groups.set(group, SharePolicy(**policy))  # type: ignore[arg-type]
    return store.client().share_consumer(topic, group=group)


def bodies(received: list[reput_client.Received]) -> list[bytes]:
    """Return the bodies."""
    return [one.message.body for one in received]


def test_a_delayed_message_is_due_when_the_clock_says_so(reput: MemoryReput) -> None:
    """Nothing comes early, and all comes at once when its time has come: timers and levels."""
    topic = reput.topic()
    consumer = consumer_of(reput, topic)
    send(reput.client(), topic, b"timer", delay_s=7200)
    send(reput.client(), topic, b"level", delay_level=18)  # two hours
    reput.advance(hours=1, minutes=59)
    assert consumer.receive(wait_s=1) == []
    before = reput.now
    reput.advance(minutes=2)
    assert timedelta(minutes=2) <= reput.now - before < timedelta(minutes=3)
    found: list[bytes] = []
    end_s = time.monotonic() + WAIT_S
    while len(found) < 2 and time.monotonic() < end_s:
        found += bodies(consumer.receive(wait_s=5))
    assert sorted(found) == [b"level", b"timer"]


def test_a_receive_that_waits_gets_a_message_that_becomes_due(reput: MemoryReput) -> None:
    """A consumer that waits in another thread gets a message when the clock moves."""
    topic = reput.topic()
    consumer = consumer_of(reput, topic)
    send(reput.client(), topic, b"later", delay_s=40 * 24 * 3600)
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.extend(bodies(consumer.receive(wait_s=20))))
    waiting.start()
    reput.advance(days=40)
    waiting.join(WAIT_S)
    assert found == [b"later"]


def test_a_lease_is_over_when_the_clock_says_so(reput: MemoryReput) -> None:
    """A message whose consumer is gone comes again after its lease."""
    topic = reput.topic()
    send(reput.client(), topic, b"work")
    group = reput.name("group")
    reput.client().share_groups.set(group, SharePolicy(invisible_s=3600))
    lost = reput.connect()
    (first,) = lost.share_consumer(topic, group=group).receive(wait_s=WAIT_S)
    other = reput.client().share_consumer(topic, group=group)
    assert other.receive(wait_s=SHORT_S) == []
    reput.advance(timedelta(hours=1), seconds=1)
    (again,) = other.receive(wait_s=WAIT_S)
    assert (first.attempt, again.attempt) == (1, 2)


def test_the_clock_only_moves_ahead(reput: MemoryReput) -> None:
    """A step back is refused."""
    with pytest.raises(ValueError, match="only moves ahead"):
        reput.advance(hours=-1)


def test_refused_calls_have_the_reason(reput: MemoryReput) -> None:
    """A refusal comes from the server, with code, reason and metadata, once; the next call is served."""
    topic = reput.topic()
    reput.fail_next("append", "MESSAGE_TOO_LARGE", field="messages[0].body", value="9", limit="8")
    with pytest.raises(reput_client.InvalidArgumentError) as caught:
        send(reput.client(), topic)
    assert (caught.value.reason, caught.value.metadata["limit"]) == ("MESSAGE_TOO_LARGE", "8")
    result = send(reput.client(), topic, keys=["k"])
    assert (result.physical_offset, result.queue_offset) == (0, 0)  # nothing was stored before
    reput.client().query.wait_indexed(result)
    reput.fail_next("query_by_key", code="DATA_LOSS")
    with pytest.raises(reput_client.DataLossError):
        list(reput.client().query.by_key(topic, "k"))
    assert len(list(reput.client().query.by_key(topic, "k"))) == 1


def test_a_temporary_refusal_is_hidden_by_retries(reput: MemoryReput) -> None:
    """A client repeats after a temporary refusal, as in production; without retries its caller sees it."""
    topic = reput.topic()
    reput.fail_next("append", "STORE_FULL", times=3)
    assert send(reput.client(), topic).queue_offset == 0
    reput.fail_next("append", "STORE_FULL")
    with pytest.raises(reput_client.ResourceExhaustedError):
        send(reput.connect(retry=NO_RETRY), topic)


def test_refusals_of_a_shared_method_spare_the_services(reput: MemoryReput) -> None:
    """Delivery goes on reading queues while pulls of clients are refused."""
    topic = reput.topic()
    consumer = consumer_of(reput, topic)
    reput.fail_next("pull", "INTERNAL")
    send(reput.client(), topic, b"work")
    assert bodies(consumer.receive(wait_s=WAIT_S)) == [b"work"]
    with pytest.raises(reput_client.ServerError):
        reput.client().queues.pull(topic, 0, 0)


@pytest.mark.parametrize(
    ("call", "values", "part"),
    [
        ("stow", {"reason": "STORE_FULL"}, "call 'stow' is unknown; known are append, "),
        ("append", {"reason": "FULL"}, "reason 'FULL' is unknown"),
        ("append", {"code": "FULL"}, "code 'FULL' is unknown"),
        ("append", {}, "needs a reason"),
        ("append", {"reason": "STORE_FULL", "times": 0}, "times is 0"),
    ],
)
def test_a_mistake_in_a_plan_is_named(reput: MemoryReput, call: str, values: dict[str, object], part: str) -> None:
    """A wrong plan is refused with its value."""
    with pytest.raises(ValueError, match=part):
        reput.fail_next(call, **values)  # type: ignore[arg-type]


@pytest.mark.reput(
    commitlog={"flush_mode": "async", "flush_interval_ms": 3_600_000, "flush_thorough_interval_ms": 3_600_000}
)
def test_a_crash_loses_unsynced_appends(reput: MemoryReput) -> None:
    """After a crash an append without a sync is gone, and an append that waited for its sync is there."""
    topic = reput.topic(queue_count=1)
    options = reput_client.ProducerOptions(durability=reput_client.Durability.LOCAL_DISK)
    with reput.client().producer(options) as producer:
        producer.send(topic, b"synced", keys=["k"]).result()
    assert send(reput.client(), topic, b"lost", keys=["k"]).durability is reput_client.Durability.MEMORY
    reput.restart(crash=True)
    result = send(reput.client(), topic, b"after", keys=["k"])
    reput.client().query.wait_indexed(result)
    assert {message.body for message in reput.client().query.by_key(topic, "k")} == {b"synced", b"after"}


def test_programs_find_the_store_by_themselves(reput: MemoryReput) -> None:
    """`connect()` without addresses is a client of the test's store."""
    topic = reput.topic()
    with reput_client.connect() as client:
        assert send(client, topic).queue_offset == 0


def test_a_stopped_store_is_away(reput: MemoryReput) -> None:
    """Between `stop` and `start` calls fail, and the time of the store goes on."""
    topic = reput.topic()
    reput.stop()
    assert not reput.is_running
    with pytest.raises(reput_client.UnavailableError):
        reput.connect(retry=NO_RETRY, timeout_s=5).topics.get(topic)
    reput.advance(days=1)
    reput.start()
    assert reput.client().topics.get(topic).name == topic


def test_each_test_has_a_new_store(reput: MemoryReput) -> None:
    """No test sees the topics of another test."""
    assert list(reput.client().topics.list()) == []


def test_names(reput: MemoryReput) -> None:
    """A name contains the name of the test, and no two names are the same."""
    assert reput.name().startswith("test_names-")
    assert reput.name("a b").startswith("test_names-a-b-")
    assert reput.name() != reput.name()
