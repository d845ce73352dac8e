# SPDX-License-Identifier: Apache-2.0
"""The promises of topics over shards, on histories made by hand: broken promises are reported, and nothing else."""

from collections.abc import Callable

import pytest

from tests.crash.shards.history import Delivery, History, Place, Sent
from tests.crash.shards.promises import check

KEY = "key"


def make() -> History:
    """Three messages of a key: two in a queue, and the third in the queue that got its keys."""
    history = History()
    for number in range(3):
        sent = Sent(KEY, number, 10.0 * number, answered_ms=10.0 * number + 5, tries=1)
        history.sent[sent.name] = sent
        receive(history, number, 100.0 + 10 * number, Place(number // 2, number % 2))
    return history


def receive(history: History, number: int, at_ms: float, place: Place, **fields: float | None) -> Delivery:
    """A message that came, and whose ack was asked for 2 ms later, and answered after 4 ms."""
    times = {"began_ms": at_ms - 2, "arrived_ms": at_ms, "settle_began_ms": at_ms + 2, "settled_ms": at_ms + 4}
    one = Delivery(f"{KEY}:{number}", place, 1, **{**times, **fields})  # type: ignore[arg-type]
    history.deliveries.append(one)
    return one


def lost(history: History) -> None:
    """The last message never comes."""
    del history.deliveries[2]


def never_sent(history: History) -> None:
    """A message comes that was not sent."""
    receive(history, 7, 200.0, Place(9, 0))


def after_its_ack(history: History) -> None:
    """A settled message comes again."""
    receive(history, 2, 300.0, Place(1, 0))


def too_early(history: History) -> None:
    """A message comes before the ack of the message before it was sent."""
    history.deliveries[2].arrived_ms = history.deliveries[1].arrived_ms


def never_settled(history: History) -> None:
    """A message comes although the message before it was never settled."""
    history.deliveries[1].settle_began_ms = history.deliveries[1].settled_ms = None


def opened_again(history: History) -> None:
    """A sealed queue is open later."""
    history.states = [{0: "open"}, {0: "sealed", 1: "open"}, {}, {0: "open", 1: "open"}]


def taken_when_sealed(history: History) -> None:
    """A sealed queue takes a message."""
    history.taken = ["sealed queue 0 took a message, at 2"]


def internal_error(history: History) -> None:
    """A shard can't answer a command."""
    history.changes = ["split orders 0: 0", "finish orders: 5 error: shard a: INTERNAL: internal error"]


def backwards(history: History) -> None:
    """An earlier message comes again after a later one."""
    history.deliveries[1].settled_ms = None
    receive(history, 1, 400.0, Place(0, 1))


def stored_twice(history: History) -> None:
    """A message that was sent once is at two places."""
    receive(history, 2, 130.0, Place(2, 0))


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lost, "never received"),
        (never_sent, "was never sent"),
        (after_its_ack, "was settled at"),
        (too_early, "before key:1"),
        (never_settled, "before key:1"),
        (backwards, "after key:2"),
        (internal_error, "INTERNAL"),
        (taken_when_sealed, "took a message"),
        (opened_again, "was sealed, and is open later"),
        (stored_twice, "was sent 1 times"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_broken_promises(spoil: Callable[[History], None], what: str) -> None:
    """Each fault is reported."""
    history = make()
    assert check(history) == ([], {})
    spoil(history)
    wrong, _ = check(history)
    assert any(what in text for text in wrong), wrong


def test_a_message_that_was_sent_again() -> None:
    """A message that its producer sent twice may be stored twice, at both queues, before the messages behind it."""
    history = make()
    history.sent[f"{KEY}:2"].tries = 2
    receive(history, 2, 130.0, Place(2, 0))
    wrong, counts = check(history)
    assert wrong == []
    assert sum(counts.values()) == 1
