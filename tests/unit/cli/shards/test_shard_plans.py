# SPDX-License-Identifier: Apache-2.0
"""Plans of changes: the shards that are chosen, and the plans that are refused."""

from collections import Counter

import pytest

from cli.commands.shards.plans import Plan, draining, merging, moving, splitting, spreading
from cli.commands.shards.rows import change_rows, change_text, queue_rows
from cli.commands.shards.shares import Seen
from libs.shards.change import ChangeRefused, first_shares, next_step
from tests.support.memory_shards import TOPIC, topic_with


def seen_with(queue_count: int = 6, **whole: int) -> Seen:
    """A topic over the shards a, b, c, or whole at shards with so many queues."""
    shares = {} if whole else dict(first_shares(list("abc"), queue_count))
    return Seen({name: topic_with(None, 6) for name in [*shares, *whole]}, shares, whole)


def made(seen: Seen, plan: Plan) -> Seen:
    """Make all steps of a plan."""
    step = plan(seen)
    while step is not None:
        seen.note(step)
        step = next_step(seen.shares)
    return seen


def test_a_split_without_shards() -> None:
    """The two shards with the fewest open queues get the new queues: the split queue is none, so its shard is first."""
    seen = made(seen_with(), splitting(2, [], list("abc")))
    assert {shard: share.open_ids for shard, share in seen.shares.items()} == {
        "a": [0, 1, 7],
        "b": [3, 6],
        "c": [4, 5],
    }
    seen = made(seen_with(), splitting(2, [], ["c"]))
    assert seen.shares["c"].open_ids == [4, 5, 6, 7], "a single shard that takes queues gets both"


@pytest.mark.parametrize(
    ("seen", "plan", "text"),
    [
        (seen_with(), moving(2, "b"), "queue 2 is at shard b already"),
        (seen_with(), merging([0, 4], "b"), "no neighbouring"),
        (seen_with(), spreading(["a"]), "lies on shards already"),
        (seen_with(a=4, b=4), spreading(["a"]), "whole at the shards a, b"),
        (seen_with(a=4), splitting(2, ["b"], []), "whole at shard a: `spread`"),
        (seen_with(a=257), spreading(["a", "b"]), "1 to 256 parents"),
    ],
)
def test_plans_that_are_refused(seen: Seen, plan: Plan, text: str) -> None:
    """A refused plan names its reason."""
    with pytest.raises(ChangeRefused, match=text):
        plan(seen)


def test_a_topic_that_is_whole_besides_its_shares() -> None:
    """It is refused: places would not be unique."""
    seen = seen_with()
    seen.whole["d"] = 4
    for plan in (moving(2, "c"), draining("b", ["a"], Counter())):
        with pytest.raises(ChangeRefused, match="whole at d, and has shares at a, b, c"):
            plan(seen)


def test_a_spread() -> None:
    """Without a number each shard gets four queues, at most 256 together."""
    seen = made(seen_with(b=3), spreading(["a", "b", "c"]))
    assert [len(share.open_ids) for _, share in sorted(seen.shares.items())] == [4, 4, 4]
    seen = made(seen_with(b=3), spreading([f"s{number}" for number in range(100)]))
    assert sum(len(share.open_ids) for share in seen.shares.values()) == 256


def test_a_drain() -> None:
    """Queues go to the shard with the fewest queues of the topic, then of all topics, until none is left."""
    seen, plan = seen_with(5), draining("c", ["a", "b"], Counter(a=9, b=2))
    assert [len(share.open_ids) for share in seen.shares.values()] == [1, 2, 2]
    seen = made(made(seen, plan), plan)
    assert {shard: len(share.open_ids) for shard, share in seen.shares.items()} == {"a": 2, "b": 3, "c": 0}
    assert plan(seen) is None
    assert plan(seen_with(a=4)) is None
    whole = made(seen_with(c=4), plan)
    assert {shard: len(share.open_ids) for shard, share in whole.shares.items()} == {"a": 4, "b": 4, "c": 0}


def test_rows_of_a_change() -> None:
    """The queues of a change are shown as they are after it, parents first."""
    seen = seen_with()
    step = splitting(2, ["a", "c"], [])(seen)
    assert step is not None
    change = step.share.change
    assert change is not None
    after = made(seen, lambda _: step)
    rows = change_rows(TOPIC, change, after.shares)
    assert [(row["queue_id"], row["shard"], row["state"], row["keys_percent"]) for row in rows] == [
        (2, "b", "sealed", 16.67),
        (6, "a", "open", 8.33),
        (7, "c", "open", 8.33),
    ]
    assert rows[1]["parents"] == [{"shard": "b", "queue_id": 2}]
    assert change_text(change) == "2 at b -> 6 at a, 7 at c"
    assert [row["queue_id"] for row in queue_rows(after.shares)] == list(range(8))
