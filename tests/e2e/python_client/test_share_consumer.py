# SPDX-License-Identifier: Apache-2.0
"""Share consumers of a real store, of the synchronous and the asynchronous client: the same test drives both."""

import asyncio
import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reput_client
from reput_client import NewMessage, Received, SharePolicy, aio
from reput_client.core.sharing.holding import HeldMessages, ShareSettings

from clients.python.tests.support import LIMIT_S
from tests.support.reput_up import Store

STORE_FLAGS = ("--delivery", "--delivery-port", "0")


class Both:
    """A client of either kind, in a thread or on an event loop of its own: `call` runs a method to its end."""

    def __init__(self, kind: str, running: Store) -> None:
        self.kind = kind
        if kind == "aio":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        self.client = self.do(lambda: (aio if kind == "aio" else reput_client).connect(**running.targets))

    def close(self) -> None:
        """End the client, and where it lives."""
        self.do(self.client.close)
        if self.kind == "aio":
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)
            self._loop.close()

    def do(self, work: Callable[[], Any]) -> Any:
        """Run a call where the client lives, and wait for it."""
        return self.begin(work)(LIMIT_S)

    def begin(self, work: Callable[[], Any]) -> Callable[[float], Any]:
        """Begin a call where the client lives. Return a function that waits for it."""
        if self.kind == "aio":

            async def run() -> Any:
                found = work()
                return await found if inspect.isawaitable(found) else found

            return asyncio.run_coroutine_threadsafe(run(), self._loop).result
        outcome: list[Any] = []
        thread = threading.Thread(target=lambda: outcome.append(work()), daemon=True)
        thread.start()

        def wait(timeout_s: float) -> Any:
            thread.join(timeout_s)
            assert not thread.is_alive()
            return outcome[0]

        return wait

    def handler(self, handle: Callable[[Received], Any]) -> Any:
        """A callback as this kind of consumer wants it. An awaitable that it returns is awaited."""
        if self.kind == "sync":
            return handle

        async def handle_soon(received: Received) -> None:
            found = await asyncio.to_thread(handle, received)
            if inspect.isawaitable(found):
                await found

        return handle_soon


@pytest.fixture(params=["sync", "aio"])
def both(request: pytest.FixtureRequest, running: Store) -> Iterator[Both]:
    both = Both(request.param, running)
    yield both
    both.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: reput_client.Client) -> str:
    """A topic that exists."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    client.topics.create(name)
    return name


def fill(client: reput_client.Client, topic: str, count: int, **fields: Any) -> set[bytes]:
    """Put messages `0`, `1` and so on into a topic."""
    bodies = [str(number).encode() for number in range(count)]
    with client.producer() as producer:
        producer.send_batch([NewMessage(topic, body, **fields) for body in bodies]).result(LIMIT_S)
    return set(bodies)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def lag(client: reput_client.Client, group: str) -> int:
    """Messages that a group has not settled."""
    return sum(queue.lag for queue in client.share_groups.get(group).queues)


def test_members_share_and_callbacks_acknowledge(client: reput_client.Client, both: Both, topic: str) -> None:
    """Two members get each message once, and a message is settled when its callback returns."""
    bodies, seen, lock = fill(client, topic, 200), Counter[bytes](), threading.Lock()

    def handle(received: Received) -> None:
        with lock:
            seen[received.message.body] += 1

    consumers = [both.do(lambda: both.client.share_consumer(topic, group=topic)) for _ in range(2)]
    runs = [both.begin(lambda one=one: one.run(both.handler(handle), concurrency=4)) for one in consumers]
    until(lambda: set(seen) == bodies and lag(client, topic) == 0)
    for one, run in zip(consumers, runs, strict=True):
        both.do(one.close)
        run(LIMIT_S)
    assert set(seen.values()) == {1}


def test_a_failing_callback_gives_back_and_ends_among_the_dead_letters(
    client: reput_client.Client, both: Both, topic: str
) -> None:
    """A message whose callback raises is redelivered, and becomes a dead letter after its attempts.

    A replay delivers it again.
    """
    client.share_groups.set(topic, SharePolicy(attempts_max=2, backoffs_s=(0.05,)))
    fill(client, topic, 1, queue_id=2, keys="k")
    attempts: list[int] = []
    is_mended = threading.Event()

    def handle(received: Received) -> None:
        attempts.append(received.attempt)
        if not is_mended.is_set():
            raise ValueError("poison")

    consumer = both.do(lambda: both.client.share_consumer(topic, group=topic))
    run = both.begin(lambda: consumer.run(both.handler(handle)))
    until(lambda: client.share_groups.get(topic).dead_letter_count == 1)
    assert attempts == [1, 2]
    (letter,) = client.dead_letters.list(topic)
    assert (letter.origin_topic, letter.origin_queue_id, letter.origin_queue_offset) == (topic, 2, 0)
    assert (letter.attempt_count, letter.message.keys) == (2, ("k",))
    is_mended.set()
    *_, last = client.dead_letters.replay(topic, places=[letter.place])
    assert (last.replayed_count, last.is_done) == (1, True)
    until(lambda: attempts == [1, 2, 1] and lag(client, topic) == 0)
    both.do(consumer.close)
    run(LIMIT_S)


def test_what_was_not_begun_goes_back_at_once(client: reput_client.Client, both: Both, topic: str) -> None:
    """A close waits for running callbacks.

    Other members get the remaining messages at once, as a first attempt.
    """
    fill(client, topic, 20)
    begun, may_end = threading.Event(), threading.Event()
    done: list[bytes] = []

    def handle(received: Received) -> None:
        begun.set()
        may_end.wait(LIMIT_S)
        done.append(received.message.body)

    consumer = both.do(lambda: both.client.share_consumer(topic, group=topic, invisible_s=3600))
    run = both.begin(lambda: consumer.run(both.handler(handle), prefetch=20))
    assert begun.wait(LIMIT_S)
    closing = both.begin(consumer.close)
    rest: list[Received] = []
    with client.share_consumer(topic, group=topic) as other:
        until(lambda: bool(rest.extend(other.receive(20))) or len(rest) == 19)
        assert {one.attempt for one in rest} == {1}
        may_end.set()
        closing(LIMIT_S)
        run(LIMIT_S)
        other.ack(*rest)
    assert len({*done, *(one.message.body for one in rest)}) == 20
    assert lag(client, topic) == 0


def test_more_time_is_asked_for_while_a_callback_runs(client: reput_client.Client, both: Both, topic: str) -> None:
    """A message is not redelivered while its callback runs longer than the message's time."""
    fill(client, topic, 1)
    seen: list[int] = []

    def handle(received: Received) -> None:
        seen.append(received.attempt)
        time.sleep(6.5)

    consumer = both.do(lambda: both.client.share_consumer(topic, group=topic, invisible_s=3.0))
    run = both.begin(lambda: consumer.run(both.handler(handle), concurrency=2))
    until(lambda: bool(seen) and lag(client, topic) == 0)
    assert seen == [1]
    both.do(consumer.close)
    run(LIMIT_S)


def test_a_group_that_is_ordered_keeps_the_order_of_keys(client: reput_client.Client, both: Both, topic: str) -> None:
    """With any number of callbacks, messages of a key are processed in turn, in order."""
    client.share_groups.set(topic, SharePolicy(is_ordered=True))
    with client.producer() as producer:
        messages = [
            NewMessage(topic, f"{key}{number}".encode(), sharding_key=key) for number in range(10) for key in "abc"
        ]
        producer.send_batch(messages).result(LIMIT_S)
    running: Counter[str] = Counter()
    order: dict[str, list[int]] = {key: [] for key in "abc"}
    overlaps: list[str] = []

    def handle(received: Received) -> None:
        key, number = received.message.body.decode()[0], int(received.message.body[1:])
        running[key] += 1
        if running[key] > 1:
            overlaps.append(key)
        time.sleep(0.005)
        order[key].append(number)
        running[key] -= 1

    consumer = both.do(lambda: both.client.share_consumer(topic, group=topic))
    run = both.begin(lambda: consumer.run(both.handler(handle), concurrency=8))
    until(lambda: sum(map(len, order.values())) == 30)
    both.do(consumer.close)
    run(LIMIT_S)
    assert overlaps == []
    assert all(numbers == list(range(10)) for numbers in order.values())


def test_each_way_to_settle(client: reput_client.Client, both: Both, topic: str) -> None:
    """Messages are acknowledged, returned, extended, terminated and buried.

    An outdated handle is refused.
    """
    fill(client, topic, 5, queue_id=0)
    consumer = both.do(lambda: both.client.share_consumer(topic, group=topic, invisible_s=30))
    received: list[Received] = []
    until(lambda: bool(received.extend(both.do(lambda: consumer.receive(5)))) or len(received) == 5)
    ack, nack, keep, drop, bury = received
    both.do(lambda: consumer.ack(ack))
    both.do(lambda: consumer.nack(nack, delay_s=0))
    both.do(lambda: consumer.extend(keep, invisible_s=60))
    both.do(lambda: consumer.terminate(drop))
    both.do(lambda: consumer.bury(bury))
    (again,) = both.do(lambda: consumer.receive(5, 10))
    assert (again.message.body, again.attempt) == (nack.message.body, 2)
    with pytest.raises(reput_client.FailedPreconditionError, match="HANDLE_OUTDATED"):
        client.share_consumer(topic, group=topic).ack(nack)
    both.do(lambda: consumer.ack(again, keep))
    until(lambda: client.share_groups.get(topic).dead_letter_count == 1)
    assert lag(client, topic) == 0
    assert [letter.message.body for letter in client.dead_letters.list(topic)] == [bury.message.body]


def test_iteration_until_a_close(client: reput_client.Client, topic: str) -> None:
    """A loop gets messages until the consumer is closed, and the messages that it was not given are released."""
    fill(client, topic, 10, queue_id=0)
    consumer = client.share_consumer(topic, group=topic)
    seen = []
    for received in consumer:
        consumer.ack(received)
        seen.append(received.message.body)
        if len(seen) == 3:
            consumer.close()
    assert len(seen) == 3
    with client.share_consumer(topic, group=topic) as other:
        rest: list[Received] = []
        until(lambda: bool(rest.extend(other.receive(10))) or len(rest) == 7)
        assert {one.attempt for one in rest} == {1}


def test_groups_are_looked_at_and_moved(client: reput_client.Client, topic: str) -> None:
    """Policies are kept unchanged, lists have all groups, and a dry run of a reset returns its plan."""
    policy = SharePolicy(attempts_max=3, backoffs_s=(0.5, 2.0), invisible_s=7.5, is_ordered=True, from_end=False)
    assert client.share_groups.set(topic, policy).policy == policy
    assert topic in [group.name for group in client.share_groups.list()]
    fill(client, topic, 4, queue_id=1)
    with client.share_consumer(topic, group=topic) as consumer:
        received: list[Received] = []
        until(lambda: bool(received.extend(consumer.receive(4))) or len(received) == 4)
        consumer.ack(*received[:3])
    group = client.share_groups.get(topic)
    (queue,) = [one for one in group.queues if one.queue_id == 1]
    assert (queue.committed_queue_offset, queue.max_queue_offset, queue.lag, queue.in_flight_count) == (3, 4, 1, 1)
    assert queue.lag_s is not None
    plan = client.share_groups.reset(topic, topic, "earliest", dry_run=True)
    assert [(move.from_queue_offset, move.to_queue_offset, move.settled_count) for move in plan][1] == (3, 0, 1)
    client.share_groups.reset(topic, topic, "latest")
    assert lag(client, topic) == 0
    client.share_groups.delete(topic)
    with pytest.raises(reput_client.NotFoundError):
        client.share_groups.get(topic)


def test_what_cannot_be_meant_is_refused(client: reput_client.Client) -> None:
    """Arguments out of range are refused at once, by name."""
    with pytest.raises(ValueError, match="invisible_s is 0"):
        client.share_consumer("t", group="g", invisible_s=0)
    with pytest.raises(ValueError, match="hold_s_max is -1"):
        client.share_consumer("t", group="g", hold_s_max=-1)
    with pytest.raises(TypeError, match="topic is"):
        client.share_consumer(["t"], group="g")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count is 0"):
        client.share_consumer("t", group="g").receive(0)
    with pytest.raises(ValueError, match="concurrency is 0"):
        client.share_consumer("t", group="g").run(lambda received: None, concurrency=0)
    with client.share_consumer("nobody-made-it", group="g") as consumer, pytest.raises(reput_client.NotFoundError):
        consumer.receive()


def test_a_message_that_is_held_too_long_gets_no_more_time() -> None:
    """A callback that hangs does not keep its message for ever."""
    held, one = HeldMessages(ShareSettings("g", hold_s_max=100).hold_s_max), Received(None, 1, "h")  # type: ignore[arg-type]
    held.add([one], 0.0)
    assert held.due(9.0, 30.0) == []
    assert held.due(10.0, 30.0) == ["h"]
    assert held.due(11.0, 30.0) == []
    assert held.due(99.0, 30.0) == ["h"]
    assert held.has(one)
    assert held.due(100.0, 30.0) == []
    assert not held.has(one)
