# SPDX-License-Identifier: Apache-2.0
"""Topics that existed lately: a frequent sender asks seldom, and the number of remembered topics has a bound."""

from libs.machine.testing.manual_clock import ManualClock
from services.gateway.engine.known_topics import COUNT_MAX, KEPT_S, KnownTopics


def test_a_topic_is_known_for_a_while() -> None:
    """A known topic is looked up again after a while, because it may have been deleted."""
    clock = ManualClock()
    known = KnownTopics(clock)
    assert not known.is_known("t")
    known.note("t")
    clock.advance(int(KEPT_S * 1000))
    assert known.is_known("t")
    clock.advance(1)
    assert not known.is_known("t")


def test_the_oldest_topic_is_forgotten() -> None:
    """At the limit the oldest topic is removed, with any number of names."""
    known = KnownTopics(ManualClock())
    known.note("first")
    for number in range(COUNT_MAX - 1):
        known.note(f"t{number}")
    known.note("first")
    known.note("one more")
    assert (known.is_known("first"), known.is_known("t0"), known.is_known("t1")) == (True, False, True)
