# SPDX-License-Identifier: Apache-2.0
"""The checker itself: each way to break a promise is told, and a store that keeps them all is not accused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1.message_pb2 import StoredMessage

from libs.formats.config import delay_offsets_json
from libs.formats.config.delay_offsets_json import DelayOffsetsFile
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import DELIVERY_TOPIC, STATE_TOPIC
from tests.crash.check import settle
from tests.crash.delayed import check_copies, check_file, check_file_at_end
from tests.crash.history import BORN_HOST, DELAY, LOCAL_DISK, MEMORY, Batch, History, Sent, State
from tests.crash.kill.plan import ROUND_COUNT, places, seeds_of_a_lap, seeds_of_all, targets, targets_of

SIZE_BYTES = 100
COUNT = 6
END = COUNT * SIZE_BYTES


def sent(number: int, **fields: object) -> Sent:
    """A message of the only caller, for queue 0."""
    plain = {
        "number": number,
        "caller": 1,
        "sequence": number,
        "topic": "orders",
        "queue_id": 0,
        "body_size_bytes": 20,
        "properties": {"KEYS": f"k{number}"},
        "born_time_ms": 5,
    }
    return Sent(**{**plain, **fields})  # type: ignore[arg-type]


def stored(one: Sent, queue_offset: int, physical_offset: int, **fields: object) -> StoredMessage:
    """The record of a message."""
    plain = {
        "topic": one.topic,
        "queue_id": 0,
        "queue_offset": queue_offset,
        "physical_offset": physical_offset,
        "body": one.body,
        "properties": one.properties,
        "born_time_ms": one.born_time_ms,
        "born_host": BORN_HOST,
        "flag": one.number,
        "record_size_bytes": SIZE_BYTES,
    }
    return StoredMessage(**{**plain, **fields})  # type: ignore[arg-type]


@pytest.fixture
def history() -> History:
    """Messages 1 to 4 acknowledged singly, a batch of 5 and 6 without an answer."""
    found = History()
    for index in range(4):
        batch = Batch([sent(index + 1)], MEMORY)
        found.send(batch)
        result = append_pb.AppendResult(
            durability=MEMORY, physical_offsets=[index * SIZE_BYTES], queue_offsets=[index], queue_ids=[0]
        )
        assert not found.acknowledge(batch, result, weak_durability_max=0)
    found.send(Batch([sent(5), sent(6)], LOCAL_DISK))
    return found


def log_of(history: History, count: int = COUNT) -> list[StoredMessage]:
    """The records of the first messages."""
    return [stored(history.messages[index + 1], index, index * SIZE_BYTES) for index in range(count)]


def look(history: History, messages: list[StoredMessage], first: int = 0, end: int = END) -> list[str]:
    """The complaints of the check."""
    return settle(history, messages, min_physical_offset=first, end_physical_offset=end)


@pytest.mark.parametrize("count", [4, 5, 6])
def test_a_store_that_keeps_its_promises(history: History, count: int) -> None:
    """A batch without an answer may be there not at all, with its first messages, or whole. Then it is settled."""
    assert look(history, log_of(history, count)) == []
    states = [history.messages[number].state for number in (5, 6)]
    assert states == [State.STORED] * (count - 4) + [State.GONE] * (6 - count)
    assert look(history, log_of(history, count)) == []
    if count < COUNT:
        assert "is gone" in look(history, log_of(history))[0]


def change(index: int, **fields: object) -> Callable[[list[StoredMessage]], None]:
    """Change a record into another record."""

    def act(messages: list[StoredMessage]) -> None:
        messages[index].MergeFrom(StoredMessage(**fields))  # type: ignore[arg-type]

    return act


def drop(index: int) -> Callable[[list[StoredMessage]], None]:
    """Lose a record."""

    def act(messages: list[StoredMessage]) -> None:
        del messages[index]

    return act


def repeat(index: int) -> Callable[[list[StoredMessage]], None]:
    """Store a message again, at the end."""

    def act(messages: list[StoredMessage]) -> None:
        again = StoredMessage()
        again.CopyFrom(messages[index])
        again.physical_offset, again.queue_offset = END, COUNT
        messages.append(again)

    return act


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (drop(0), "message 1 was acknowledged at 0 and is not there"),
        (drop(3), "message 4 was acknowledged at 300 and is not there"),
        (drop(4), "of the batch [5, 6] there is [(6, 500)]"),
        (repeat(1), "message 2 is there twice"),
        (change(2, flag=77), "was never sent"),
        (change(2, body=b"other"), "message 3: body is"),
        (change(2, properties={"KEYS": "other"}), "message 3: properties is"),
        (change(2, born_time_ms=6), "message 3: born_time_ms is"),
        (change(2, topic="others"), "message 3: topic is"),
        (change(2, queue_id=1), "message 3: queue_id is"),
        (change(2, physical_offset=201), "message 3: physical_offset is"),
        (change(2, queue_offset=7), "7 follows where 2 should"),
        (lambda messages: messages.reverse(), "follows where"),
    ],
)
def test_every_broken_promise_is_told(
    history: History, damage: Callable[[list[StoredMessage]], None], complaint: str
) -> None:
    """A good log is changed once, and the complaint names the change."""
    messages = log_of(history)
    damage(messages)
    wrong = look(history, messages, end=END + SIZE_BYTES)
    assert any(complaint in text for text in wrong), wrong


def test_a_refused_message_leaves_no_trace(history: History) -> None:
    """A refusal means that the message is nowhere."""
    history.refuse(history.open_batches[0])
    assert look(history, log_of(history, 4)) == []
    assert "which is refused" in look(history, log_of(history))[0]


def test_what_was_seen_stays(history: History) -> None:
    """A reader's message may not vanish, although it was not acknowledged."""
    history.see(log_of(history)[4:])
    assert look(history, log_of(history, 5)) == ["message 6 was seen at 500 and is not there any more"]


def test_a_weak_acknowledgement_may_be_lost_at_the_end_only(history: History) -> None:
    """It is forgiven where the log ends before it, and not in the middle of the log."""
    for number in (2, 4):
        history.messages[number].is_weak = True
    messages = log_of(history, 3)
    del messages[1]
    wrong = look(history, messages, end=3 * SIZE_BYTES)
    assert "message 2 was acknowledged at 100 and is not there" in wrong
    assert not any("message 4" in text for text in wrong)
    assert history.forgiven_count == 1


def test_trimmed_messages_are_no_loss(history: History) -> None:
    """Below the first byte that is kept nothing is owed."""
    assert look(history, log_of(history)[2:], first=2 * SIZE_BYTES) == []


def delayed(number: int, level: int = 1) -> Sent:
    """A message that waits first."""
    return sent(number, properties={DELAY: str(level), "KEYS": "k"})


def waiting(one: Sent, queue_offset: int, physical_offset: int, **fields: object) -> StoredMessage:
    """Its record in the schedule topic."""
    properties = {**one.properties, "REAL_TOPIC": "orders", "REAL_QID": "0"}
    place = {"topic": SCHEDULE_TOPIC, "queue_id": int(one.properties[DELAY]) - 1, "properties": properties}
    return stored(one, queue_offset, physical_offset, **place, **fields)


def copy(one: Sent, queue_offset: int, physical_offset: int, **fields: object) -> StoredMessage:
    """Its record in its own topic."""
    return stored(one, queue_offset, physical_offset, properties={"KEYS": "k"}, **fields)


def test_a_delayed_message_waits_before_it_is_delivered() -> None:
    """Its record is in the schedule topic, once, and its copy in its own topic, behind it, with its properties."""
    history = History()
    one = delayed(1)
    history.send(Batch([one], MEMORY))
    record, delivered = waiting(one, 0, 0), copy(one, 0, 100)
    assert look(history, [record, delivered]) == []
    assert one.copy_physical_offset == 100
    assert look(history, [record, delivered]) == look(history, [delivered], first=100) == []
    assert "which is nowhere before it" in look(history, [delivered])[0]
    assert "twice" in look(history, [record, record, delivered])[0]


def test_a_delayed_message_is_delivered_once() -> None:
    """A second copy is told, also when the first has expired, and so is a copy that is gone."""
    history = History()
    one = delayed(1)
    history.send(Batch([one], MEMORY))
    record, delivered, again = waiting(one, 0, 0), copy(one, 0, 100), copy(one, 1, 200)
    assert "message 1 is delivered twice, at 100" in look(history, [record, delivered, again])[0]
    assert "message 1 is delivered twice, at 100" in look(history, [again], first=200)[0]
    assert "message 1 was delivered at 100 and is not there any more" in look(history, [record])


@pytest.mark.parametrize("topic", [DELIVERY_TOPIC, STATE_TOPIC])
def test_records_of_the_services_are_no_messages(history: History, topic: str) -> None:
    """They have the flag of no message, and their queue has no gaps either."""
    journal = [StoredMessage(topic=topic, queue_offset=at, physical_offset=END + at) for at in (0, 1, 3)]
    assert look(history, [*log_of(history), *journal[:2]], end=END + 2) == []
    assert "3 follows where 2 should" in look(history, [*log_of(history), *journal], end=END + 4)[0]


def test_deliveries_keep_the_order_of_their_level_and_the_time() -> None:
    """A message before which others of its level wait, an early message and a strange queue are told."""
    history = History()
    first, second, later = delayed(1), delayed(2), delayed(3, level=2)
    history.send(Batch([first, second, later], MEMORY))
    records = [
        *(waiting(first, 0, 0, store_time_ms=5), waiting(second, 1, 100, store_time_ms=5)),
        waiting(later, 0, 200, store_time_ms=5),
    ]
    good = [
        *(copy(first, 0, 300, store_time_ms=5), copy(second, 1, 400, store_time_ms=5)),
        copy(later, 2, 500, store_time_ms=1005),
    ]
    assert check_copies(history, [*records, *good], min_physical_offset=0) == []
    left_out = "message 2 is delivered, and [1] before it are not"
    assert check_copies(history, [*records, good[1], good[0]], min_physical_offset=0) == [left_out]
    assert check_copies(history, [*records, *good[1:]], min_physical_offset=0) == [left_out]
    assert check_copies(history, [*records, *good[1:]], min_physical_offset=100) == []
    early = [*good[:2], copy(later, 2, 500, store_time_ms=1004)]
    wrong = ["message 3 is delivered 1 ms too early"]
    assert check_copies(history, [*records, *early], min_physical_offset=0) == wrong
    strange = [copy(first, 0, 300, store_time_ms=5, queue_id=1), *good[1:]]
    wrong = ["message 1 is delivered to queue 1, not 0"]
    assert check_copies(history, [*records, *strange], min_physical_offset=0) == wrong


def test_positions_of_levels_may_be_late_and_never_ahead(tmp_path: Path) -> None:
    """A position behind a message that was not delivered would lose it in RocketMQ. The last position is the end."""
    history = History()
    one, other = delayed(1), delayed(2)
    history.send(Batch([one, other], MEMORY))
    assert look(history, [waiting(one, 0, 0), waiting(other, 1, 100), copy(one, 0, 200)]) == []
    assert check_file(tmp_path, history, min_physical_offset=0) == []
    assert "not {1: 2}" in check_file_at_end(tmp_path, {1: 2})[0]
    file = tmp_path / "config" / "delayOffset.json"
    file.parent.mkdir()
    for position in (0, 1):
        file.write_text(delay_offsets_json.dumps(DelayOffsetsFile({1: position})))
        assert check_file(tmp_path, history, min_physical_offset=0) == []
    file.write_text(delay_offsets_json.dumps(DelayOffsetsFile({1: 2})))
    assert "message 2 of level 1 at queue offset 1" in check_file(tmp_path, history, min_physical_offset=0)[0]
    assert check_file(tmp_path, history, min_physical_offset=200) == []
    assert check_file_at_end(tmp_path, {1: 2}) == []


def test_the_plan_meets_every_place_and_every_mode() -> None:
    """Seeds in a row go through the plan, wherever they begin."""
    for first in (0, 7, 1_234_567):
        met = {target for seed in range(first, first + seeds_of_a_lap()) for target in targets_of(seed)}
        assert {(target.service, target.failpoint) for target in met} == set(places())
        met = {target for seed in range(first, first + seeds_of_all()) for target in targets_of(seed)}
        assert met == set(targets())
    assert len(targets_of(5)) == ROUND_COUNT
