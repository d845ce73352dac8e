# SPDX-License-Identifier: Apache-2.0
"""The groups that a sample need not ask: groups at rest, for some samples, until anything is known to have moved."""

from dataclasses import replace

from reput_client import ShareGroup, SharePolicy, ShareQueue

from services.console.ask.samples.asked import AGE_S_MAX, Asked

QUEUE = ShareQueue("orders", 0, 5, 7, 10, 5, 2, 0, lag_s=100.0, lag_bytes=50)
GROUP = ShareGroup("billing", SharePolicy(), (QUEUE,), 0)
NEWS = {"billing": "as before"}


def moved(**fields: object) -> ShareGroup:
    return replace(GROUP, queues=(replace(QUEUE, **fields),))  # type: ignore[arg-type]


def asked(*answers: ShareGroup) -> Asked:
    """Return answers that came 10 s apart, the last at 0."""
    found = Asked()
    for at, group in enumerate(answers, 1 - len(answers)):
        found.put({"billing": group}, NEWS, at * 10.0)
    return found


def test_a_group_at_rest_is_not_asked_for_a_while() -> None:
    """After two equal answers the last is taken again, until it is too old."""
    still = asked(GROUP, moved(lag_s=110.0)).still(["billing", "other"], NEWS, 10.0)
    assert [(name, one.group.queues[0].lag_s, one.asked_s) for name, one in still.items()] == [("billing", 110.0, 0.0)]
    known = asked(GROUP, GROUP)
    assert known.still(["billing"], NEWS, AGE_S_MAX)
    assert not known.still(["billing"], NEWS, AGE_S_MAX + 1)


def test_a_group_that_moves_is_asked() -> None:
    """The first answer, a change between two answers, and news that the sample has anyway let the group be asked."""
    assert not asked(GROUP).still(["billing"], NEWS, 1.0)
    for field in ("committed_queue_offset", "next_queue_offset", "max_queue_offset", "lag", "in_flight_count"):
        assert not asked(moved(**{field: 1}), GROUP).still(["billing"], NEWS, 1.0), field
    assert not asked(GROUP, GROUP).still(["billing"], {"billing": "a topic has grown"}, 1.0)


def test_an_answer_is_forgotten() -> None:
    """A group that was not asked for long, as it is gone or has no place, begins anew."""
    known = asked(GROUP, GROUP)
    known.put({}, {}, AGE_S_MAX + 1)
    known.put({"billing": GROUP}, NEWS, AGE_S_MAX + 2)
    assert not known.still(["billing"], NEWS, AGE_S_MAX + 3)
