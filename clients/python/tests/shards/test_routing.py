# SPDX-License-Identifier: Apache-2.0
"""The routing of a producer over shards, decision by decision."""

from dataclasses import replace
from typing import Any

import pytest
from reput_client import NewMessage, NotFoundError, OutcomeUnknownError, QueuePlace, QueueRange, UnavailableError
from reput_client.core.shards.chunks import key_hash

from clients.python.tests.shards.bench import (
    AWAY,
    ENCODER,
    HASHES,
    PATIENCE_S,
    TOPIC,
    UNKNOWN,
    Bench,
    BodySink,
    keys_of,
    parts,
    refusal,
    share_of,
    topic_of,
)

FIRST, SECOND = parts(2)
HALF = HASHES // 4
UNDER_A, UNDER_B = QueueRange(2, 0, HALF - 1), QueueRange(3, HALF, FIRST.last_hash)
SEALED = FIRST._replace(is_sealed=True)


def two_shards(**options: object) -> Bench:
    """Shards a and b with a queue each: 0 has the lower half of the hashes, and 1 the upper half."""
    bench = replace(Bench(), **options)  # type: ignore[arg-type]
    bench.add("begin")
    bench.answer("a", share_of(1, FIRST))
    bench.answer("b", share_of(1, SECOND))
    bench.store("a")
    bench.store("b")
    return bench


def test_a_key_goes_to_the_queue_of_its_hash() -> None:
    """The first message asks all shards. The queue's number is in the message, behind its other fields."""
    bench = Bench()
    low, high = keys_of(FIRST, 1)[0], keys_of(SECOND, 1)[0]
    bench.add("low", key=low)
    bench.add("high", key=high)
    assert bench.routing.pop_questions()
    assert not any(bench.sent.values())
    bench.answer("b", share_of(1, SECOND))
    assert (bench.bodies("a"), bench.bodies("b")) == ([], ["high"])
    bench.answer("a", share_of(1, FIRST))
    assert bench.store("a") == [(0, "low")]
    assert bench.store("b") == [(1, "high")]
    assert bench.outcomes == {"low": "stored", "high": "stored"}
    assert bench.routing.is_idle


def test_shards_are_asked_again_after_ten_seconds_of_use() -> None:
    """A topic that is not used asks nothing. The answer is used until the next answer."""
    bench = two_shards()
    bench.now_s += 11
    assert bench.routing.question("a") is None
    bench.add("again")
    assert bench.sent["a"] or bench.sent["b"]
    bench.answer("a", share_of(1, FIRST))
    assert bench.routing.question("a") is None
    bench.answer("b", share_of(1, SECOND))
    bench.now_s += 9
    bench.add("once more")
    assert bench.routing.question("a") is None


def test_messages_without_a_key_go_where_fewer_wait() -> None:
    """Of two queues at random the queue with fewer messages of this producer gets the message."""
    bench = two_shards()
    for number in range(10):
        bench.add(f"{number}")
    assert (len(bench.sent["a"]), len(bench.sent["b"])) == (5, 5)
    bench.store("b")
    for number in range(10, 14):
        bench.add(f"{number}")
    assert (len(bench.sent["a"]), len(bench.sent["b"])) == (5, 4)


def test_a_shard_that_is_away_gets_no_message_without_a_key() -> None:
    """For a second, and then as long as it has not answered the messages that it has. All away: any queue."""
    bench = two_shards()
    bench.add("at a", key=keys_of(FIRST, 1)[0])
    bench.routing.on_away("a")
    for number in range(6):
        bench.add(f"{number}")
    assert bench.bodies("a") == ["at a"]
    bench.now_s += 2
    bench.add("later")
    assert bench.bodies("a") == ["at a"], "it has a message, and has not answered since"
    bench.store("a")
    bench.add("back")
    assert bench.bodies("a") == ["back"]
    bench.routing.on_away("a")
    bench.routing.on_away("b")
    bench.add("any")
    assert "any" in bench.bodies("a") + bench.bodies("b")


def test_a_queue_that_the_program_chose() -> None:
    """It takes precedence over the key. A sealed queue refuses, and a queue of no shard is an error."""
    bench = two_shards()
    bench.add("one", key=keys_of(FIRST, 1)[0], queue_id=1)
    assert bench.store("b") == [(1, "one")]
    bench.add("none", queue_id=9)
    assert bench.outcomes["none"] == "QUEUE_NOT_HERE"
    bench.add("sealed", queue_id=0)
    bench.fail("a", refusal(0))
    assert "sealed" not in bench.outcomes
    bench.now_s += 0.1
    bench.answer("a", share_of(2, SEALED))
    assert bench.outcomes["sealed"] == "QUEUE_NOT_HERE"
    assert bench.routing.is_idle


def test_a_topic_of_a_single_shard_goes_there_untouched() -> None:
    """Its log chooses the queue. It is known when all shards have answered, or failed."""
    bench = Bench()
    bench.add("free")
    bench.add("keyed", key="k")
    bench.add("chosen", queue_id=3)
    bench.answer("b", None)
    assert not bench.sent["b"]
    bench.answer("a", AWAY)
    assert sorted(bench.store("b")) == [(-1, "free"), (-1, "keyed"), (3, "chosen")]
    assert set(bench.outcomes.values()) == {"stored"}


def test_a_topic_that_no_shard_has() -> None:
    """Its messages fail when all shards have said so. The next message asks again."""
    bench = Bench()
    bench.add("first")
    bench.answer("a", UNKNOWN)
    assert not bench.outcomes
    bench.answer("b", UNKNOWN)
    assert bench.outcomes == {"first": "TOPIC_NOT_FOUND"}
    assert (bench.routing.question("a"), bench.routing.is_idle) == (None, True)
    bench.add("second")
    bench.now_s += 1
    bench.answer("b", None)
    bench.answer("a", UNKNOWN)
    assert bench.store("b") == [(-1, "second")]


def test_names_of_topics_that_no_shard_has_take_no_memory() -> None:
    """The producer forgets them, and answers that come later do no harm."""
    bench = Bench()
    for number in range(100):
        bench.add(f"{number}", topic=f"wrong-{number}")
        for shard in ("a", "b"):
            bench.answer(shard, UNKNOWN, f"wrong-{number}")
    assert set(bench.outcomes.values()) == {"TOPIC_NOT_FOUND"}
    assert bench.routing.question_wait_s("a") is None
    bench.routing.answer("a", "wrong-1", UNKNOWN)
    assert bench.routing.is_idle


def test_a_shard_that_is_away_may_have_the_topic() -> None:
    """Then the messages wait, and fail with its error when their time is over."""
    bench = Bench()
    bench.add("first")
    bench.answer("a", UNKNOWN)
    bench.answer("b", AWAY)
    bench.now_s += PATIENCE_S + 1
    bench.routing.expire()
    (_, error), *_ = bench.routing.pop_failed()
    assert isinstance(error, UnavailableError)
    assert (error.reason, "shard b: failed to connect" in str(error)) == ("DEPENDENCY_UNAVAILABLE", True)


def test_a_topic_that_is_whole_at_two_shards() -> None:
    """Its places would not be unique."""
    bench = Bench()
    bench.add("first")
    bench.answer("a", None)
    bench.answer("b", None)
    assert bench.outcomes == {"first": "FailedPreconditionError"}


def test_a_shard_that_is_away_keeps_its_share() -> None:
    """Its keys go to it, and messages for its queues wait at its producer."""
    bench = two_shards()
    bench.now_s += 11
    bench.add("first")
    bench.answer("a", AWAY)
    bench.add("keyed", key=keys_of(FIRST, 1)[0])
    assert "keyed" in bench.bodies("a")
    bench.answer("b", UNKNOWN)
    bench.add("lost", key=keys_of(SECOND, 1)[0])
    assert "lost" not in bench.bodies("b"), "the shard says that it does not have the topic"


def test_refused_messages_go_to_the_children_in_their_order() -> None:
    """They wait for all outcomes of their key, and for an open child. Other keys do not wait."""
    bench = two_shards()
    key, other = keys_of(UNDER_B, 1)[0], keys_of(SECOND, 1)[0]
    for number in range(4):
        bench.add(f"{number}", key=key)
    assert bench.store("a", 1) == [(0, "0")]
    assert bench.fail("a", refusal(0), 1) == ["1"]
    bench.add("4", key=key)
    bench.add("other", key=other)
    assert bench.store("b") == [(1, "other")]
    bench.now_s += 0.06
    bench.answer("a", share_of(3, SEALED))
    bench.answer("b", share_of(4, SECOND, UNDER_B))
    assert bench.bodies("b") == [], "the queue may still store the messages 2 and 3"
    assert bench.fail("a", refusal(0)) == ["2", "3"]
    assert bench.store("b") == [(3, number) for number in "1234"]
    assert set(bench.outcomes.values()) == {"stored"}


def test_children_that_are_not_open_yet_are_asked_for() -> None:
    """Each twentieth of a second, while messages wait for a queue."""
    bench = two_shards()
    bench.add("0", key=keys_of(FIRST, 1)[0])
    bench.fail("a", refusal(0))
    assert bench.routing.pop_questions()
    for _ in range(3):
        bench.now_s += 0.06
        bench.answer("a", share_of(3, SEALED))
        bench.answer("b", share_of(1, SECOND))
        assert bench.routing.question_wait_s("b") == pytest.approx(0.05)
    bench.now_s += 0.06
    bench.answer("b", share_of(4, SECOND, QueueRange(2, 0, FIRST.last_hash, parents=(QueuePlace("a", 0),))))
    assert bench.store("b") == [(2, "0")]
    bench.now_s += 1
    assert bench.routing.question("a") is None


def test_an_answer_to_an_older_question_opens_no_queue() -> None:
    """A shard that was asked before its queue was sealed may answer after the refusal."""
    bench = two_shards()
    bench.now_s += 11
    bench.add("0", key=keys_of(FIRST, 1)[0])
    assert bench.routing.question("a") == TOPIC
    bench.fail("a", refusal(0))
    bench.routing.answer("a", TOPIC, topic_of(share_of(1, FIRST)))
    bench.go_on()
    assert bench.bodies("a") == []
    bench.now_s += 0.06
    bench.answer("a", share_of(1, FIRST))
    assert bench.bodies("a") == ["0"], "a new answer says that the queue is open"


def test_a_new_route_waits_for_the_outcomes_of_the_old_queue() -> None:
    """The periodic question finds a change before a message is refused: later messages wait all the same."""
    bench = two_shards()
    key = keys_of(UNDER_A, 1)[0]
    bench.add("0", key=key)
    bench.now_s += 11
    bench.answer("a", share_of(4, SEALED, UNDER_A))
    bench.answer("b", share_of(4, SECOND, UNDER_B))
    bench.add("1", key=key)
    assert bench.bodies("a") == ["0"]
    assert bench.store("a", 1) == [(0, "0")]
    assert bench.store("a") == [(2, "1")]


def test_messages_without_a_key_go_on_at_once() -> None:
    """They have no order, so that another open queue gets them."""
    bench = two_shards()
    for number in range(4):
        bench.add(f"{number}")
    refused = bench.fail("a", refusal(0), 2)
    assert len(refused) == 2
    assert len(bench.sent["b"]) == 4
    assert not bench.sent["a"]


def test_a_failed_message_lets_the_next_go_on() -> None:
    """Any other error is the outcome of the message."""
    bench = two_shards()
    key = keys_of(FIRST, 1)[0]
    bench.add("0", key=key)
    bench.add("1", key=key)
    bench.fail("a", UnavailableError("x"), 1)
    assert bench.outcomes["0"] == "UnavailableError"
    assert bench.store("a") == [(0, "1")]
    assert bench.routing.failed_count == 1


def test_messages_that_may_be_stored_say_so_when_they_are_given_up() -> None:
    """A refused repetition may have been stored by its first attempt."""
    bench = two_shards()
    bench.add("0", key=keys_of(FIRST, 1)[0])
    bench.fail("a", refusal(0, OutcomeUnknownError))
    assert bench.routing.fail_all(UnavailableError("closed")) == 1
    ((_, error),) = bench.routing.pop_failed()
    assert isinstance(error, OutcomeUnknownError)


def test_the_window_is_that_of_all_shards() -> None:
    """Messages that wait count, too. An empty routing takes a message of any size."""
    bench = Bench(window_bytes=200)
    assert bench.routing.has_room(10_000, TOPIC)
    bench.add("x" * 100)
    assert not bench.routing.has_room(100, TOPIC)
    bench.answer("a", share_of(1, *parts(1)))
    bench.answer("b", NotFoundError("x", reason="TOPIC_NOT_FOUND"))
    assert not bench.routing.has_room(100, TOPIC)
    bench.store("a")
    assert bench.routing.has_room(10_000, TOPIC)
    assert (bench.routing.unsettled_bytes, bench.routing.is_idle) == (0, True)


def test_a_closed_producer_of_a_shard() -> None:
    """Messages for it fail with its error."""
    bench = two_shards()
    sink = BodySink(bench.outcomes, "late")
    encoded = (*ENCODER.encode(NewMessage(TOPIC, b"late")), sink)
    bench.routing.add(TOPIC, encoded, key=keys_of(FIRST, 1)[0])
    ((shard, placed),) = bench.routing.pop_sends()
    assert shard == "a"
    bench.routing.on_unsent(placed, UnavailableError("closed"))
    bench.go_on()
    assert bench.outcomes["late"] == "UnavailableError"


def test_the_hash_of_a_key() -> None:
    """The first four bytes of the SHA-256 of its text, as the gateway has it."""
    assert key_hash("") == 0xE3B0C442
    assert key_hash("abc") == 0xBA7816BF


def fill(bench: Bench, size_bytes: int, **options: Any) -> int:
    """Send messages of a size until there is no room for another. Returns their number."""
    count = 0
    while bench.routing.has_room(size_bytes, TOPIC, **options):
        bench.add(f"{options}{count}".ljust(size_bytes, "x"), **options)
        count += 1
    return count


def test_a_shard_takes_half_of_the_window() -> None:
    """A shard that does not answer leaves the other half to the messages for others, also before it counts as away."""
    low, high = keys_of(FIRST, 1)[0], keys_of(SECOND, 1)[0]
    bench = two_shards(window_bytes=100_000)
    assert 0 < fill(bench, 1_000, key=low) < 50
    assert not bench.routing.has_room(1_000, TOPIC, queue_id=0)
    for number in range(200):
        assert bench.routing.has_room(1_000, TOPIC, key=high)
        bench.add(f"high {number}".ljust(1_000, "x"), key=high)
        bench.store("b")
        assert bench.routing.has_room(1_000, TOPIC)
        bench.add(f"any {number}".ljust(1_000, "x"))
        assert len(bench.store("b")) == 1
    bench.store("a", 1)
    assert bench.routing.has_room(1_000, TOPIC, key=low)


def test_messages_that_wait_take_half_of_the_window_together() -> None:
    """Messages for a shard that is away, and messages whose queue is not known, count together."""
    low, high = keys_of(FIRST, 1)[0], keys_of(SECOND, 1)[0]
    bench = two_shards(window_bytes=100_000)
    bench.add("x" * 20_000, key=low)
    bench.routing.on_away("a")
    assert not bench.routing.has_room(40_000, "another")
    assert not bench.routing.has_room(40_000, TOPIC, key=low)
    assert bench.routing.has_room(40_000, TOPIC, key=high)
    assert bench.routing.has_room(40_000, TOPIC)


def test_a_silent_shard_gets_no_messages_without_a_key() -> None:
    """A shard that sends no outcome for half a second counts as away, until its next outcome."""
    bench = two_shards()
    bench.add("low", key=keys_of(FIRST, 1)[0])
    bench.now_s += 0.4
    bench.routing.expire()
    assert [bench.add(f"{number}") for number in range(20)]
    assert len(bench.bodies("a")) > 1
    bench.store("b")
    bench.now_s += 0.6
    bench.routing.expire()
    before = len(bench.bodies("a"))
    for number in range(20, 40):
        bench.add(f"{number}")
    assert (len(bench.bodies("a")), len(bench.store("b"))) == (before, 20)
    bench.store("a")
    for number in range(40, 60):
        bench.add(f"{number}")
    assert bench.bodies("a")


def test_a_single_shard_takes_the_whole_window() -> None:
    """There is no other shard to leave room for."""
    bench = Bench(shards=("a",), window_bytes=100_000)
    bench.add("begin")
    bench.answer("a", share_of(1, *parts(1)))
    bench.store("a")
    assert fill(bench, 1_000, key="k") > 80
