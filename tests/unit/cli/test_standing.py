# SPDX-License-Identifier: Apache-2.0
"""`reput status` names groups that are held up for some time, and tells how many messages wait in delay levels."""

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from reput_client import DelayLevel, ReputError, ShareGroup, SharePolicy, ShareQueue

from cli.commands.state.page import Rates, page_lines
from cli.commands.state.standing import (
    GROUP_COUNT_MAX,
    LINE_COUNT_MAX,
    STILL_S,
    Still,
    level_lines,
    look_levels,
    look_still,
    still_lines,
    still_of,
)
from cli.commands.state.states import States

PAUSED, BLOCKED = "the group is paused", "3 messages wait for the message at offset 17, which has the same ordering key"
AWAY = ReputError("nobody listens", code=grpc.StatusCode.UNAVAILABLE)


def queue(queue_id: int, lag_s: float | None, *reasons: str, topic: str = "orders") -> ShareQueue:
    """A queue of a group."""
    return ShareQueue(topic, queue_id, 0, 0, 9, 9, 0, 0, lag_s, 900, standstills=reasons)


def group(name: str, *queues: ShareQueue) -> ShareGroup:
    """A group with these queues."""
    return ShareGroup(name, SharePolicy(), queues, 0)


class Client:
    """A client whose Delivery has these groups; a request for a missing group fails."""

    def __init__(self, *groups: ShareGroup, gone: int = 0) -> None:
        self.groups = groups
        self.gone, self.asked = gone, list[str]()
        self.share_groups = self

    def list(self) -> Iterator[ShareGroup]:
        """See ShareGroups."""
        return iter(self.groups)

    def get(self, name: str) -> ShareGroup:
        """See ShareGroups."""
        self.asked.append(name)
        if len(self.asked) <= self.gone:
            raise AWAY
        return next(one for one in self.groups if one.name == name)


def test_who_is_held_up() -> None:
    """A queue with a reason counts if its oldest message has waited for some time.

    Of several queues of a topic, the longest wait is shown.
    """
    found = still_of(
        [
            group("quick", queue(0, STILL_S - 1, BLOCKED), queue(1, None), queue(2, 900.0)),
            group("audit", queue(0, 20.0, PAUSED)),
            group("billing", queue(0, 60.0, PAUSED), queue(1, 180.0, BLOCKED), queue(2, 30.0, BLOCKED, topic="bills")),
        ]
    )
    assert [one[:4] for one in found] == [
        ("billing", "orders", 2, 180.0), ("billing", "bills", 1, 30.0), ("audit", "orders", 1, 20.0),
    ]  # fmt: skip
    assert list(still_lines(found)) == [
        f"billing at orders is held up in 2 queues, its oldest message for 3 min: {BLOCKED}",
        f"billing at bills is held up, its oldest message for 30 s: {BLOCKED}",
        f"audit at orders is held up, its oldest message for 20 s: {PAUSED}",
    ]


def test_lines_and_questions_are_bounded() -> None:
    """The number of lines and requests is limited, for any number of groups."""
    groups = [group(f"g{number:03d}", queue(0, 60.0, PAUSED)) for number in range(GROUP_COUNT_MAX + 1)]
    client: Any = Client(*groups, gone=1)
    found = look_still(client)
    assert (len(client.asked), len(found)) == (GROUP_COUNT_MAX, GROUP_COUNT_MAX - 1)
    *lines, rest = still_lines(found)
    assert (len(lines), rest) == (LINE_COUNT_MAX, "94 more groups and topics are held up: `reput groups list`")


def test_a_delivery_that_goes_spoils_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Delivery is missing, no group is reported."""
    client: Any = Client()

    def fails() -> Iterator[ShareGroup]:
        raise AWAY

    monkeypatch.setattr(client, "list", fails)
    assert look_still(client) == []


def test_the_page_has_them() -> None:
    """The page has a line for a group that is held up, and no such line without a held-up group."""
    states = States(0.0, {})
    assert not [line for line in page_lines(states, [], Rates.between(None, states), 100) if "held up" in line]
    states.still = [Still("billing", "orders", 1, 60.0, PAUSED)]
    text = " ".join(" ".join(page_lines(states, [], Rates.between(None, states), 100)).split())
    assert f"groups billing at orders is held up, its oldest message for 1 min: {PAUSED}" in text


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([], []),
        ([(1, 0, 0.0), (2, 0, 5.0)], []),
        ([(1, 1, 0.0), (2, 0, 0.0)], ["1 delayed message waits"]),
        ([(1, 1_000, 0.4), (2, 234, 0.0)], ["1,234 delayed messages wait"]),
        ([(1, 2, 3.0), (2, 3, 125.0)], ["5 delayed messages wait, the oldest 2 min 5 s late"]),
    ],
)
def test_messages_in_delay_levels(levels: Sequence[tuple[int, int, float]], said: Sequence[str]) -> None:
    """A single sentence has the messages of all levels, and the lateness if a message is late by more than a second."""
    found = [DelayLevel(level, 1.0, waiting, lateness_s, "") for level, waiting, lateness_s in levels]
    assert list(level_lines(found)) == said
    states = States(0.0, {})
    states.delay_levels = found
    page = list(page_lines(states, [], None, 100))
    assert [line for line in page if line.startswith("delayed")] == [f"delayed    {one}" for one in said]


def test_a_delivery_that_does_not_answer_has_no_levels() -> None:
    """If Delivery is missing, stops or does not own the journal, the page is without levels."""

    class Delayed:
        delayed: "Delayed"

        def __init__(self) -> None:
            self.delayed = self

        def levels(self) -> Sequence[DelayLevel]:
            raise AWAY

    client: Any = Delayed()
    assert look_levels(client) == []
