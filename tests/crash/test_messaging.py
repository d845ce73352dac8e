# SPDX-License-Identifier: Apache-2.0
"""The promises to producers and groups, on histories made by hand: broken promises are reported, and nothing else."""

from collections.abc import Callable

import pytest

from tests.crash.messaging.history import ClockStep, Death, Delivery, Group, History, Place, Sent
from tests.crash.messaging.promises import check

TOPIC, LANES = "orders", "lanes"
INVISIBLE_MS = 1_000.0


def make() -> History:
    """Two groups of two topics: a plain message, two of a key, a delayed message, a transaction. Nothing is wrong."""
    history = History(groups={"plain": Group(TOPIC), "ordered": Group(LANES, is_ordered=True)})
    send(history, "plain-0", 0)
    send(history, "key-0", 10, topic=LANES, kind="keyed", key="key")
    send(history, "key-1", 20, topic=LANES, kind="keyed", key="key")
    send(history, "delayed-0", 30, kind="delayed", deliver_ms=200, place=None)
    send(history, "transaction-0", 40, kind="transaction", place=None, end="commit", end_began_ms=50, ended_ms=60)
    receive(history, "plain-0", 100)
    receive(history, "key-0", 100, group="ordered")
    receive(history, "key-1", 120, group="ordered", offset=1)
    receive(history, "delayed-0", 220, offset=1)
    receive(history, "transaction-0", 240, offset=2)
    return history


def send(history: History, name: str, at_ms: float, *, topic: str = TOPIC, **fields: object) -> Sent:
    """A message that was sent, and acknowledged 5 ms later."""
    offset = int(name[-1])
    plain = {"kind": "plain", "answered_ms": at_ms + 5, "place": Place(topic, 0, offset)}
    sent = history.sent[name] = Sent(name=name, topic=topic, began_ms=at_ms, **{**plain, **fields})  # type: ignore[arg-type]
    return sent


def receive(
    history: History, name: str, at_ms: float, *, group: str = "plain", offset: int = 0, **fields: object
) -> Delivery:
    """A message that came, and whose ack was asked for 2 ms later, and answered after 4 ms."""
    plain = {"attempt": 1, "began_ms": at_ms - 2, "verb": "ack", "settle_began_ms": at_ms + 2, "settled_ms": at_ms + 4}
    one = Delivery(
        group=group,
        place=Place(history.groups[group].topic, 0, offset),
        name=name,
        arrived_ms=at_ms,
        invisible_ms=INVISIBLE_MS,
        **{**plain, **fields},  # type: ignore[arg-type]
    )
    history.deliveries.append(one)
    return one


def test_all_is_as_promised() -> None:
    """Nothing is wrong, and nothing came twice."""
    assert check(make()) == ([], {})


def is_lost(history: History) -> None:
    history.deliveries = [one for one in history.deliveries if one.name != "plain-0"]


def is_lost_for_another_group(history: History) -> None:
    history.groups["audit"] = Group(TOPIC)


def is_elsewhere_alone(history: History) -> None:
    history.sent["plain-0"].place = Place(TOPIC, 1, 7)


def is_committed_and_lost(history: History) -> None:
    history.deliveries = [one for one in history.deliveries if one.name != "transaction-0"]


def is_invented(history: History) -> None:
    receive(history, "nobody-9", 100, offset=9)


def is_rolled_back(history: History) -> None:
    history.sent["transaction-0"].end = "rollback"


def is_open(history: History) -> None:
    history.sent["transaction-0"].end = ""


def is_seen_before_its_commit(history: History) -> None:
    history.sent["transaction-0"].end_began_ms = 250


def is_early(history: History) -> None:
    history.sent["delayed-0"].deliver_ms = 221


def is_early_by_a_clock_that_was_set_back(history: History) -> None:
    history.sent["delayed-0"].deliver_ms = 221
    history.clock_steps = [ClockStep("commitlog", 50, -1_000), ClockStep("delivery", 60, 1_000)]


def is_early_by_more_than_the_clock_is_ahead(history: History) -> None:
    history.sent["delayed-0"].deliver_ms = 290
    history.clock_steps = [ClockStep("commitlog", 50, 60)]


def is_early_by_a_clock_that_is_set_ahead_later(history: History) -> None:
    history.sent["delayed-0"].deliver_ms = 221
    history.clock_steps = [ClockStep("commitlog", 230, 1_000)]


def ends_its_delay_early_although_the_clock_was_ahead_before(history: History) -> None:
    history.sent["delayed-0"].deliver_ms, history.sent["delayed-0"].is_after_delay = 221, True
    history.clock_steps = [ClockStep("commitlog", 1, 1_000)]


def comes_before_its_time_is_over_although_the_clock_was_set_ahead(history: History) -> None:
    history.deliveries[0].settled_ms = None
    receive(history, "plain-0", 600, attempt=2)
    history.clock_steps = [ClockStep("commitlog", 300, 3_600_000)]


def comes_after_its_ack(history: History) -> None:
    receive(history, "plain-0", 5_000, attempt=2)


def comes_after_its_ack_by_a_call_that_began_before(history: History) -> None:
    receive(history, "plain-0", 5_000, attempt=2, began_ms=90)


def comes_before_the_one_before_is_settled(history: History) -> None:
    history.deliveries[1].settle_began_ms, history.deliveries[1].settled_ms = 121, 122


def comes_although_the_one_before_was_given_back(history: History) -> None:
    history.deliveries[1].verb = "nack"
    receive(history, "key-0", 130, group="ordered", attempt=2)


def comes_after_the_one_behind(history: History) -> None:
    history.deliveries[1].settled_ms = None  # it may count or not; that of the next message says that it did
    receive(history, "key-0", 2_000, group="ordered", attempt=2)


def has_a_key_in_two_queues(history: History) -> None:
    history.deliveries[2].place = history.sent["key-1"].place = Place(LANES, 1, 0)


def is_stored_before_what_was_answered_before(history: History) -> None:
    history.sent["key-0"].began_ms, history.sent["key-0"].answered_ms = 30, 35


def comes_before_its_time_is_over(history: History) -> None:
    history.deliveries[0].settled_ms = None
    receive(history, "plain-0", 600, attempt=2)


def comes_before_the_delay_of_its_nack_is_over(history: History) -> None:
    history.deliveries[0].verb, history.deliveries[0].delay_ms = "nack", 500
    receive(history, "plain-0", 600, attempt=2)


def comes_again_although_nobody_died(history: History) -> None:
    history.deliveries[0].settled_ms = None
    receive(history, "plain-0", 1_200, attempt=2)


def comes_again_although_a_gateway_alone_died(history: History) -> None:
    comes_again_although_nobody_died(history)
    history.deaths.append(Death("gateway", 500, 600))


def comes_again_to_another_client_although_a_gateway_died_once(history: History) -> None:
    comes_again_although_a_gateway_alone_died(history)
    history.groups["plain"] = Group(TOPIC, is_native=False)


def is_stored_twice_although_nobody_died(history: History) -> None:
    receive(history, "plain-0", 300, offset=8)


def is_a_transaction_that_is_stored_twice(history: History) -> None:
    history.deaths.append(Death("commitlog", 42, 60))
    receive(history, "transaction-0", 300, offset=8)


BROKEN: dict[Callable[[History], None], str] = {
    is_lost: "group plain never received it",
    is_lost_for_another_group: "group audit never received it",
    is_elsewhere_alone: "received it elsewhere alone",
    is_committed_and_lost: "group plain never received it",
    is_invented: "was never sent there",
    is_rolled_back: "its transaction is rollback",
    is_open: "its transaction is open",
    is_seen_before_its_commit: "before its transaction was committed",
    is_early: "before its time",
    is_early_by_a_clock_that_was_set_back: "before its time",
    is_early_by_more_than_the_clock_is_ahead: "before its time",
    is_early_by_a_clock_that_is_set_ahead_later: "before its time",
    ends_its_delay_early_although_the_clock_was_ahead_before: "before its time",
    comes_before_its_time_is_over_although_the_clock_was_set_ahead: "it was the receiver's until",
    comes_after_its_ack: "although the ack of attempt 1 was answered",
    comes_after_its_ack_by_a_call_that_began_before: "although the ack of attempt 1 was answered",
    comes_before_the_one_before_is_settled: "was acknowledged",
    comes_although_the_one_before_was_given_back: "was acknowledged",
    comes_after_the_one_behind: "again after",
    has_a_key_in_two_queues: "are in several queues",
    is_stored_before_what_was_answered_before: "is stored before",
    comes_before_its_time_is_over: "it was the receiver's until",
    comes_before_the_delay_of_its_nack_is_over: "it was the receiver's until",
    comes_again_although_nobody_died: "nobody had died meanwhile",
    comes_again_although_a_gateway_alone_died: "gateway had died meanwhile",
    comes_again_to_another_client_although_a_gateway_died_once: "gateway had died meanwhile",
    is_stored_twice_although_nobody_died: "stored twice: sent again, nobody had died",
    is_a_transaction_that_is_stored_twice: "(transaction) is at",
}


@pytest.mark.parametrize("break_it", BROKEN, ids=lambda break_it: break_it.__name__)
def test_a_broken_promise_is_told(break_it: Callable[[History], None]) -> None:
    """Each by the words that belong to it."""
    history = make()
    break_it(history)
    wrong, _ = check(history)
    assert any(BROKEN[break_it] in what for what in wrong), wrong


def test_what_comes_twice_for_a_reason_is_counted_by_it() -> None:
    """A message that was given back, left, or could not be settled while a service was away breaks no promise."""
    history = make()
    history.groups |= {name: Group(TOPIC) for name in ("back", "left", "slow", "away")}
    history.groups["official"] = Group(TOPIC, is_native=False)
    for name in history.groups.keys() - {"plain", "ordered"}:
        history.deliveries += [
            receive(History(groups=history.groups), one.name, one.arrived_ms, group=name, offset=one.place.queue_offset)
            for one in history.deliveries[3:5]
        ]
    for name, at_ms, fields in (
        ("back", 300, {"verb": "nack", "delay_ms": 150}),
        ("left", 2_000, {"verb": "", "settle_began_ms": None}),
        ("slow", 2_000, {"settle_began_ms": 1_500}),
        ("away", 3_000, {}),
        ("official", 2_000, {}),
    ):
        receive(history, "plain-0", 100, group=name, settled_ms=None, **fields)
        receive(history, "plain-0", at_ms, group=name, attempt=2)
    history.deaths = [Death("gateway", at_ms, at_ms + 50) for at_ms in (150, 400)] + [Death("delivery", 2_500, 2_600)]
    wrong, counts = check(history)
    assert wrong == []
    assert counts == {
        "came again: its receiver gave it back": 1,
        "came again: its receiver left it": 1,
        "came again: its receiver came to it too late, gateway had died": 1,
        "came again: could not be settled in time, delivery and gateway had died": 1,
        "came again: could not be settled in time, gateway had died": 1,
    }


def test_what_comes_early_by_the_clock_of_the_log_is_not_early() -> None:
    """A time of the clock counts by the log's clock; a delay ends earlier by the step of the clock meanwhile."""
    for is_after_delay, at_ms in ((False, 5.0), (True, 100.0)):
        history = make()
        history.sent["delayed-0"].deliver_ms, history.sent["delayed-0"].is_after_delay = 700, is_after_delay
        history.clock_steps = [ClockStep("commitlog", at_ms, 500), ClockStep("commitlog", 110.0, -500)]
        assert check(history) == ([], {})


def test_a_delivery_that_starts_by_a_clock_that_was_set_ahead() -> None:
    """A message that its former process gave out may come again before its time is over. It is counted."""
    history = make()
    history.deliveries[0].settled_ms = None
    receive(history, "plain-0", 600, attempt=2)
    history.clock_steps = [ClockStep("commitlog", 300, 3_600_000)]
    history.deaths = [Death("delivery", 300, 500)]
    assert check(history) == ([], {"came again: Delivery died, and the log's clock was set ahead": 1})


def test_what_is_stored_twice_for_a_reason_is_counted_by_it() -> None:
    """A send that was repeated because the log, or the gateway on the way to it, had died breaks no promise."""
    for service, is_native, count in (("commitlog", True, 1), ("gateway", False, 1), ("gateway", True, 0)):
        history = make()
        history.sent["plain-0"].is_native = is_native
        history.deaths = [Death(service, 2, 4)]
        receive(history, "plain-0", 300, offset=8)
        wrong, counts = check(history)
        assert counts[f"stored twice: sent again, {service} had died"] == count
        assert bool(wrong) == (count == 0)
