# SPDX-License-Identifier: Apache-2.0
"""Rules of topics: the segments that they hold, the messages that expire by them, and the looks at the Indexer."""

import pytest

from libs.requests.errors import DependencyUnavailable
from services.janitor.engine.facts import Expiry, Facts, Hold, TopicRule
from services.janitor.engine.policy import HOUR_MS, Reason, Trigger, decide
from services.janitor.engine.topic_rules import TopicRules, TopicState, begins_of, hold_of, replaced
from tests.unit.services.janitor.support import CONSUMER, FAR, NOW_MS, SIZE, Owners, policy, segment

AWAY = DependencyUnavailable("indexer", "it is away")
LONG, SHORT = TopicRule("audit", 200), TopicRule("noise", 1, 50)


def state(rule: TopicRule, begin: int, *, kept: int = 1, expired: int = 0, error: str = "") -> TopicState:
    """A state under a policy of 72 hours."""
    return TopicState(rule, rule.retention_hours > 72, Expiry(begin, expired, kept), error)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], None),
        ([state(SHORT, 100)], None),
        ([state(LONG, 1500, kept=0)], None),
        ([state(LONG, 1500), state(SHORT, 100)], Hold(1500, "audit", 200)),
        ([state(LONG, 1500), state(TopicRule("b", 300), 700)], Hold(700, "b", 300)),
        ([state(LONG, 0, kept=0, error="away")], Hold(0, "audit", 200)),
    ],
)
def test_hold(states: list[TopicState], expected: Hold | None) -> None:
    """The first record that a longer rule keeps is held. A longer rule of an unknown topic holds all segments."""
    assert hold_of(states) == expected


def test_a_hold_keeps_expired_segments_only() -> None:
    """Segments from the hold on stay and older segments are deleted. Limits by size and disk disregard a hold."""
    segments = [segment(number) for number in range(4)]
    facts = Facts(segments, FAR, FAR, hold=Hold(SIZE + 1, "audit", 200))

    def reasons(**changes: object) -> list[Reason]:
        return [one.reason for one in decide(facts, NOW_MS, policy(**changes), requested=Trigger.MANUAL).decisions]

    kept = [Reason.EXPIRED] + [Reason.TOPIC_KEPT] * 3
    assert reasons() == kept
    assert reasons(retention_bytes=2 * SIZE) == [Reason.EXPIRED, Reason.OVER_SIZE, Reason.TOPIC_KEPT, Reason.TOPIC_KEPT]
    assert "topic audit keeps messages for 200 hours" in decide(facts, NOW_MS, policy()).decisions[1].explanation
    fresh = Facts([segment(0, age_hours=1)], FAR, FAR, hold=Hold(0, "audit", 200))
    assert [one.reason for one in decide(fresh, NOW_MS, policy()).decisions] == [Reason.NOT_EXPIRED]


def test_begins_and_replacement() -> None:
    """Only topics with expired messages get a begin; the rule of a trial replaces the rule of its topic."""
    assert begins_of([state(LONG, 10), state(SHORT, 20, expired=3)]) == {"noise": 20}
    assert replaced([LONG, SHORT], TopicRule("audit", 5)) == [TopicRule("audit", 5), SHORT]
    assert replaced([SHORT], LONG) == [LONG, SHORT]


async def test_looks() -> None:
    """A look asks the Indexer about each rule, again after the interval or a change of rules. Messages expire once."""
    owners = Owners([])
    owners.rules = [LONG, SHORT]
    owners.expiries = {"audit": AWAY, "noise": Expiry(700, 4, 6)}
    rules = TopicRules(owners, owners, interval_ms=1000)
    states = await rules.look(NOW_MS, 72)
    assert owners.asked == [(LONG, NOW_MS - 200 * HOUR_MS), (SHORT, NOW_MS - HOUR_MS)]
    assert [(one.is_longer, bool(one.error)) for one in states] == [(True, True), (False, False)]
    await rules.look(NOW_MS + 999, 72)
    assert len(owners.asked) == 2
    owners.rules = [TopicRule("noise", 0, 50)]
    await rules.look(NOW_MS + 999, 72)
    assert owners.asked[2:] == [(TopicRule("noise", 0, 50), None)]
    await rules.expire()
    assert (owners.expired, rules.expired_message_count) == ([{"noise": 700}], 4)
    owners.expiries["noise"] = Expiry(700, 0, 6)
    await rules.look(NOW_MS + 1000, 72)
    await rules.expire()
    assert (len(owners.expired), len(owners.asked)) == (1, 4)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([Expiry(700, 4)], 4),
        ([Expiry(700, 4), Expiry(700, 4)], 4),
        ([Expiry(700, 4), Expiry(900, 6)], 6),
        ([Expiry(700, 4), Expiry(900, 2, shown_physical_offset=700)], 6),
        ([Expiry(700, 4), Expiry(900, 6), Expiry(900, 6), Expiry(950, 1, shown_physical_offset=900)], 7),
        ([Expiry(700, 4), Expiry(700, 0, shown_physical_offset=700), Expiry(900, 3, shown_physical_offset=700)], 7),
    ],
    ids=["once", "not heard", "not heard, and more", "heard, and more", "heard late", "heard, then more"],
)
async def test_each_message_is_counted_once(answers: list[Expiry], expected: int) -> None:
    """An Indexer that has not heard of a begin returns messages again that have expired. They count once.

    `expire` is called twice after each look, as by a check that also runs.
    """
    owners = Owners([])
    owners.rules = [SHORT]
    rules = TopicRules(owners, owners, interval_ms=1000)
    for answer in answers:
        owners.expiries = {"noise": answer}
        await rules.look(NOW_MS, 72, is_new=True)
        await rules.expire()
        await rules.expire()
    assert rules.expired_message_count == expected


async def test_a_trial_names_the_groups_that_miss_messages() -> None:
    """Only the rule that is tried asks for groups; the states of the last look stay."""
    owners = Owners([])
    owners.rules = [LONG, SHORT]
    owners.expiries = {"noise": Expiry(700, 4, consumers=(CONSUMER,), consumer_count=1)}
    rules = TopicRules(owners, owners, interval_ms=1000)
    tried = TopicRule("noise", 2, 50)
    states = await rules.trial(tried, NOW_MS, 72)
    assert owners.asked_for_consumers == [tried]
    assert [one.expiry.consumer_count for one in states] == [0, 1]
    assert rules.states == ()
