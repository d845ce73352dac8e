# SPDX-License-Identifier: Apache-2.0
"""The send queue, step by step and without a network: batches, window, outcomes, retries, splits."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from google.rpc import status_pb2
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendOutcome, AppendRequest, AppendResult
from reput_client import (
    Durability,
    OutcomeUnknownError,
    ProducerOptions,
    ReputError,
    RetryPolicy,
    SendResult,
    UnavailableError,
)
from reput_client.core.errors import from_status
from reput_client.core.producing import settle_all
from reput_client.core.retry import FOLLOWS_MAX
from reput_client.core.sending import Batch, SendQueue, Stored
from reput_client.core.telemetry.unread import Unread

from clients.python.tests.support import NotingSink, status

CODE = grpc.StatusCode
LINE_CUT = UnavailableError("the line was cut", code=CODE.UNAVAILABLE)
NO_LINE = UnavailableError("failed to connect to all addresses; last error: x", code=CODE.UNAVAILABLE)
FULL = status(CODE.RESOURCE_EXHAUSTED, "STORE_FULL")


@dataclass
class Bench:
    """A send queue with a sink that records outcomes, and a server's side that numbers stored messages."""

    retries: int = 3
    batch_size_bytes: int = 80
    window_bytes: int = 1000
    now_s: float = 0.0
    outcomes: dict[str, object] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        retry = RetryPolicy(retries=self.retries, delay_min_s=1, delay_max_s=1, chance=random.Random(1).random)
        options = ProducerOptions(
            batch_size_bytes=self.batch_size_bytes, window_bytes=self.window_bytes, linger_ms=5, retry=retry
        )
        self.queue, self.unread = SendQueue(options), Unread()

    def add(self, *names: str, size_bytes: int = 20) -> None:
        """Add messages whose topic is the first letter of their name. The name is the beginning of the body."""
        for name in names:
            body = name.encode().ljust(size_bytes - 7)
            chunk = AppendRequest(messages=[AppendMessage(topic=name[0], body=body)]).SerializeToString()
            assert len(chunk) == size_bytes
            self.queue.add(chunk, f"id-{name}", NotingSink(self.outcomes, name), lambda: self.now_s)

    def pop(self) -> list[str] | None:
        """Take a batch and return the names of its messages."""
        batch = self.queue.pop(self.now_s)
        return None if batch is None else self.names_of(batch)

    def names_of(self, batch: Batch) -> list[str]:
        return [message.body.decode().strip() for message in AppendRequest.FromString(batch.to_request(0)).messages]

    def answer(self, *outcomes: list[str] | status_pb2.Status) -> None:
        """Answer the oldest batches: names were stored, a Status refuses."""
        built = []
        for outcome in outcomes:
            if isinstance(outcome, status_pb2.Status):
                built.append(AppendOutcome(error=outcome))
                continue
            first = len(self.stored)
            self.stored += outcome
            numbers = range(first, len(self.stored))
            result = AppendResult(
                physical_offsets=numbers, queue_offsets=numbers, queue_ids=[0] * len(outcome), durability=2
            )
            built.append(AppendOutcome(result=result))
        self.queue.on_outcomes(built, self.now_s)
        self.deliver()

    def cut(self, error: ReputError = LINE_CUT) -> None:
        self.queue.on_broken(error, self.now_s)
        self.deliver()

    def deliver(self) -> None:
        settle_all(self.queue.pop_settled(), self.unread)

    def summary(self) -> dict[str, str]:
        return {
            name: "stored" if isinstance(outcome, SendResult) else type(outcome).__name__
            for name, outcome in self.outcomes.items()
        }


def test_linger() -> None:
    """A batch waits for company, at most for the linger time after its first message."""
    bench = Bench()
    bench.add("a")
    assert (bench.pop(), bench.queue.wait_s(0.0)) == (None, 0.005)
    bench.now_s = 0.004
    bench.add("b")
    assert bench.pop() is None
    bench.now_s = 0.005
    assert bench.pop() == ["a", "b"]
    assert (bench.pop(), bench.queue.wait_s(0.005)) == (None, None)


def test_size_makes_ready() -> None:
    """A batch is ready when it is full, or when the next message does not fit any more."""
    bench = Bench()
    bench.add("a", "b", "c", "d", "e")
    assert bench.pop() == ["a", "b", "c", "d"]
    assert bench.pop() is None
    bench.add("f", size_bytes=70)
    assert bench.pop() == ["e"]
    assert bench.pop() is None


def test_a_message_larger_than_a_batch_travels_alone() -> None:
    """A message above the batch size is a batch of its own."""
    bench = Bench()
    bench.add("a")
    bench.add("b", size_bytes=120)
    bench.add("c")
    bench.queue.close_batch()
    assert [bench.pop(), bench.pop(), bench.pop()] == [["a"], ["b"], ["c"]]


def test_window() -> None:
    """There is room up to the window, and for a message of any size when the queue is empty."""
    bench = Bench(window_bytes=100)
    assert bench.queue.has_room(5000)
    bench.add("a")
    assert bench.queue.has_room(80)
    assert not bench.queue.has_room(81)
    bench.queue.close_batch()
    bench.pop()
    bench.answer(["a"])
    assert bench.queue.is_idle
    assert bench.queue.has_room(5000)


def test_results() -> None:
    """Each message gets its own columns of the batch's result, batches in the order in which they were taken."""
    bench = Bench()
    bench.add("a", "b", "c", "d", "e")
    bench.queue.close_batch()
    first, second = bench.pop(), bench.pop()
    bench.answer(first, second)
    assert [bench.outcomes[name].queue_offset for name in "abcde"] == [0, 1, 2, 3, 4]
    assert bench.outcomes["c"].unique_id == "id-c"
    assert bench.outcomes["c"].durability.name == "LOCAL_DISK"


def test_threads_read_results_of_a_batch_at_the_same_time() -> None:
    """The results are made when the first of them is read, by any thread."""
    numbers = range(20_000)
    answer = AppendResult(physical_offsets=numbers, queue_offsets=numbers, queue_ids=[0] * 20_000, durability=2)
    stored = Stored(answer, [str(number) for number in numbers])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(stored.at, range(0, 20_000, 100)))
    assert [(result.physical_offset, result.unique_id) for result in found] == [
        (number, str(number)) for number in range(0, 20_000, 100)
    ]


def test_passing_refusals_are_retried_in_order() -> None:
    """Batches that were refused for a temporary reason are sent again, after a pause, in their old order."""
    bench = Bench()
    bench.add(*"abcdefghij")
    bench.queue.close_batch()
    assert [bench.pop(), bench.pop()] == [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    bench.answer(FULL, FULL)
    assert bench.pop() is None
    assert 0.5 <= bench.queue.wait_s(bench.now_s) <= 1
    bench.now_s = 1.0
    for names in ("abcd", "efgh", "ij"):
        assert bench.pop() == [*names]
        bench.answer([*names])
    assert set(bench.summary().values()) == {"stored"}


def test_retries_end() -> None:
    """After the last retry the messages fail with the server's own error."""
    bench = Bench(retries=2)
    bench.add("a")
    for _ in range(3):
        bench.now_s += 10
        assert bench.pop() == ["a"]
        bench.answer(FULL)
    assert bench.outcomes["a"].reason == "STORE_FULL"
    assert bench.queue.is_idle


def test_a_cut_line_resends() -> None:
    """Messages without an outcome when the connection breaks are sent again, before newer messages."""
    bench = Bench()
    bench.add(*"abcdefghi")
    bench.pop()
    second = bench.pop()
    bench.answer(["a", "b", "c", "d"])
    bench.cut()
    bench.now_s = 1.0
    bench.queue.close_batch()
    for names in (second, ["i"]):
        assert bench.pop() == names
        bench.answer(names)


def test_without_retries_a_cut_line_is_an_unknown_outcome() -> None:
    """retries=0: messages that were sent have an unknown outcome. Messages that were not sent yet are still sent."""
    bench = Bench(retries=0)
    bench.add(*"abcde")
    bench.pop()
    bench.cut()
    assert bench.summary() == dict.fromkeys("abcd", "OutcomeUnknownError")
    assert isinstance(bench.outcomes["a"], OutcomeUnknownError)
    bench.queue.close_batch()
    assert bench.pop() == ["e"]


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ([NO_LINE, NO_LINE], "UnavailableError"),
        ([LINE_CUT, NO_LINE], "OutcomeUnknownError"),
        ([NO_LINE, LINE_CUT], "OutcomeUnknownError"),
    ],
)
def test_what_never_had_a_connection_is_not_stored(errors: list[ReputError], outcome: str) -> None:
    """An outcome is unknown only if an attempt may have reached the server."""
    bench = Bench(retries=1)
    bench.add(*"abcd")
    for error in errors:
        bench.pop()
        bench.cut(error)
        bench.now_s += 2
    assert bench.summary() == dict.fromkeys("abcd", outcome)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (status(CODE.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", field="messages[2].body"), ["c1"]),
        (status(CODE.INVALID_ARGUMENT, "BAD_PROPERTIES", metadata={"field": "messages[0].properties"}), ["a1"]),
        (status(CODE.FAILED_PRECONDITION, "TOPIC_FORBIDDEN", metadata={"topic": "a"}), ["a1", "a2"]),
        (status(CODE.NOT_FOUND, "TOPIC_NOT_FOUND", field="messages[1].topic"), ["b1"]),
        (status(CODE.INVALID_ARGUMENT, "BAD_TOPIC_NAME", field="messages[3].topic"), ["a1", "a2"]),
        (status(CODE.FAILED_PRECONDITION, "STORE_SEALED"), ["a1", "b1", "c1", "a2"]),
        (status(CODE.NOT_FOUND, "TOPIC_NOT_FOUND", metadata={"topic": "z"}), ["a1", "b1", "c1", "a2"]),
    ],
)
def test_one_bad_message_fails_alone(error: status_pb2.Status, failed: list[str]) -> None:
    """A refusal fails the message or the topic that it names. The rest is sent again at once."""
    bench = Bench()
    names = ["a1", "b1", "c1", "a2"]
    bench.add(*names)
    assert bench.pop() == names
    bench.answer(error)
    assert list(bench.outcomes) == failed
    rest = [name for name in names if name not in failed]
    if rest:
        assert bench.pop() == rest
        bench.answer(rest)
    assert bench.queue.is_idle


def test_an_unnamed_bad_message_is_found_by_halving() -> None:
    """A refusal that names nothing still fails only the message that the store can't take."""
    bench = Bench(batch_size_bytes=1000)
    bench.add(*"abcdefgh")
    bench.queue.close_batch()
    while (names := bench.pop()) is not None:
        bench.answer(status(CODE.INVALID_ARGUMENT, "BATCH_TOO_LARGE") if "f" in names else names)
    assert {name for name, kind in bench.summary().items() if kind != "stored"} == {"f"}
    assert bench.stored == list("abcdegh")


@pytest.mark.parametrize(
    "outcome",
    [
        AppendOutcome(result=AppendResult(physical_offsets=[1], queue_offsets=[1], queue_ids=[1])),
        AppendOutcome(result=AppendResult(physical_offsets=[1, 2], queue_offsets=[1], queue_ids=[1, 2])),
        AppendOutcome(
            result=AppendResult(
                physical_offsets=[1, 2], queue_offsets=[1, 2], queue_ids=[0, 0], durability=1, store_host={"port": -1}
            )
        ),
        AppendOutcome(
            error=status_pb2.Status(
                code=3, details=[{"type_url": "type.googleapis.com/google.rpc.ErrorInfo", "value": b"\xff"}]
            )
        ),
    ],
)
def test_answers_that_make_no_sense(outcome: AppendOutcome) -> None:
    """An impossible answer settles nothing. The batch is still in flight and can be failed."""
    bench = Bench()
    bench.add("a", "b")
    bench.queue.close_batch()
    bench.pop()
    with pytest.raises((ReputError, ValueError)):
        bench.queue.on_outcomes([outcome], 0.0)
    assert bench.queue.pop_settled() == []
    bench.queue.on_broken(ReputError("nonsense"), 0.0)
    bench.deliver()
    assert bench.summary() == {"a": "OutcomeUnknownError", "b": "OutcomeUnknownError"}


def test_a_durability_of_a_newer_server() -> None:
    """The messages are stored, and how safely this client can't say."""
    bench = Bench()
    bench.add(*"abcd")
    bench.pop()
    numbers = [1, 2, 3, 4]
    result = AppendResult(physical_offsets=numbers, queue_offsets=numbers, queue_ids=[0] * 4, durability=99)
    bench.queue.on_outcomes([AppendOutcome(result=result)], 0.0)
    bench.deliver()
    assert [outcome.durability for outcome in bench.outcomes.values()] == [Durability.DEFAULT] * 4


def test_an_answer_to_nothing() -> None:
    """More outcomes than batches is an error, not a crash."""
    with pytest.raises(ReputError, match="more batches"):
        Bench().queue.on_outcomes([AppendOutcome()], 0.0)


def test_fail_all() -> None:
    """Closing without waiting settles all messages: open, ready and in flight."""
    bench = Bench()
    bench.add(*"abcdefghi")
    bench.pop()
    assert bench.queue.fail_all(LINE_CUT) == 9
    bench.deliver()
    assert bench.summary() == dict.fromkeys("abcd", "OutcomeUnknownError") | dict.fromkeys("efghi", "UnavailableError")
    assert bench.queue.is_idle


def test_a_refusal_does_not_tell_of_an_earlier_attempt() -> None:
    """A message that may have been stored before a lost answer has no known outcome, even after a later refusal."""
    bench = Bench(retries=1)
    bench.add(*"abcd")
    bench.pop()
    bench.cut()
    bench.now_s += 2
    bench.pop()
    bench.answer(status(CODE.FAILED_PRECONDITION, "STORE_SEALED"))
    assert bench.summary() == dict.fromkeys("abcd", "OutcomeUnknownError")


@pytest.mark.parametrize(
    "code", [CODE.UNAUTHENTICATED, CODE.PERMISSION_DENIED, CODE.UNIMPLEMENTED, CODE.RESOURCE_EXHAUSTED]
)
def test_a_stream_that_was_not_let_in_stored_nothing(code: grpc.StatusCode) -> None:
    """Its messages fail with the reason, and not with a doubt."""
    bench = Bench(retries=0)
    bench.add(*"abcd")
    bench.pop()
    bench.cut(from_status(status(code, "QUOTA_EXCEEDED" if code is CODE.RESOURCE_EXHAUSTED else "NOT_PERMITTED")))
    assert not any(isinstance(outcome, OutcomeUnknownError) for outcome in bench.outcomes.values())
    assert len(bench.outcomes) == 4


def test_nothing_is_handed_out_to_a_stream_of_a_log_that_follows() -> None:
    """The stream ends when the batches in flight are answered, even if messages are added. Then all are sent again."""
    bench = Bench()
    bench.add(*"abcdefghijkl")
    first, second = bench.pop(), bench.pop()
    bench.answer(status(CODE.UNAVAILABLE, "NOT_LEADER", metadata={"leader": "b:7101"}))
    bench.now_s += 2
    assert bench.pop() is None
    assert bench.queue.wait_s(bench.now_s) is None
    assert bench.queue.pop_moved() is None
    bench.answer(status(CODE.UNAVAILABLE, "NOT_LEADER", metadata={"leader": "b:7101"}))
    moved = bench.queue.pop_moved()
    assert moved is not None
    assert moved.metadata == {"leader": "b:7101"}
    bench.cut(moved)
    bench.now_s += 2
    for names in (first, second):
        assert bench.pop() == names
        bench.answer(names)


def test_a_stream_that_breaks_is_no_move() -> None:
    """The next stream does not end for an answer to the stream before."""
    bench = Bench()
    bench.add(*"abcdefgh")
    bench.pop()
    bench.pop()
    bench.answer(status(CODE.UNAVAILABLE, "NOT_LEADER", metadata={"leader": "b:7101"}))
    bench.cut()
    bench.now_s += 2
    assert bench.pop() == list("abcd")
    bench.answer(["a", "b", "c", "d"])
    assert bench.queue.pop_moved() is None


FOLLOWER = status(CODE.UNAVAILABLE, "NOT_LEADER", metadata={"leader": "b:7101"})
LEASE_IS_OVER = status(CODE.UNAVAILABLE, "LEASE_OVER")


@pytest.mark.parametrize("retries", [0, 3])
def test_a_leader_that_is_named_is_followed_at_once(retries: int) -> None:
    """It is no failed attempt: a batch whose attempts are used up is still sent to the leader, without a wait."""
    bench = Bench(retries=retries)
    bench.add(*"abcd")
    for _ in range(retries):
        bench.pop()
        bench.answer(FULL)
        bench.now_s += 2
    for _ in range(2):
        assert bench.pop() == list("abcd")
        bench.answer(FOLLOWER)
        bench.cut(bench.queue.pop_moved())
    assert bench.pop() == list("abcd")
    bench.answer(list("abcd"))
    assert set(bench.summary().values()) == {"stored"}


def test_logs_that_name_each_other_are_not_followed_for_ever() -> None:
    """After some answers in a row the next answer is a failed attempt, with a wait, and the attempts end."""
    bench = Bench(retries=2)
    bench.add(*"abcd")
    waits, answers = 0, 0
    while not bench.outcomes:
        if bench.pop() is None:
            waits += 1
            bench.now_s += 2
            continue
        answers += 1
        bench.answer(FOLLOWER)
        moved = bench.queue.pop_moved()
        if moved is not None:
            bench.cut(moved)
    assert (waits, answers) == (2, 3 * (FOLLOWS_MAX + 1))
    assert set(bench.summary().values()) == {"UnavailableError"}


def test_a_log_whose_lease_was_over_is_a_line_that_was_cut() -> None:
    """The batch may be stored or not: it is sent again, and without retries its outcome is unknown."""
    bench = Bench(retries=1)
    bench.add(*"abcd")
    bench.pop()
    bench.answer(LEASE_IS_OVER)
    bench.cut(bench.queue.pop_moved())
    assert bench.outcomes == {}
    bench.now_s += 2
    assert bench.pop() == list("abcd")
    bench.answer(LEASE_IS_OVER)
    assert set(bench.summary().values()) == {"OutcomeUnknownError"}
    once = Bench(retries=0)
    once.add(*"abcd")
    once.pop()
    once.answer(LEASE_IS_OVER)
    assert set(once.summary().values()) == {"OutcomeUnknownError"}


@pytest.mark.parametrize("chance_seed", range(20))
def test_every_message_is_settled_once(chance_seed: int) -> None:
    """For all answers of the server, each message gets exactly a single outcome, and no refused message is stored."""
    chance = random.Random(chance_seed)
    bench = Bench(retries=4)
    names = [f"{chance.choice('abc')}{number}" for number in range(200)]
    waiting: list[list[str]] = []
    for name in names:
        bench.add(name, size_bytes=chance.randrange(12, 60))
        bench.now_s += chance.random() / 100
        while (batch := bench.pop()) is not None:
            waiting.append(batch)
        while waiting and chance.random() < 0.3:
            kind = chance.random()
            if kind < 0.2:
                bench.cut()
                waiting.clear()
            elif kind < 0.4:
                bench.answer(FULL)
                waiting.pop(0)
            elif kind < 0.6:
                index = chance.randrange(len(waiting[0]))
                bench.answer(status(CODE.INVALID_ARGUMENT, "BAD_PROPERTIES", field=f"messages[{index}].properties"))
                waiting.pop(0)
            else:
                bench.answer(waiting.pop(0))
    bench.queue.close_batch()
    while not bench.queue.is_idle:
        bench.now_s += 2
        while (batch := bench.pop()) is not None:
            waiting.append(batch)
        bench.answer(*waiting)
        waiting.clear()
    assert sorted(bench.outcomes) == sorted(names)
    stored = [name for name, outcome in bench.outcomes.items() if isinstance(outcome, SendResult)]
    assert sorted(bench.stored) == sorted(stored)
