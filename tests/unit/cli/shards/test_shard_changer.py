# SPDX-License-Identifier: Apache-2.0
"""Changer: a change is made step by step, beside other programs, shards that are away, and kills at any point."""

from collections.abc import Callable

import pytest
from reput_client import NotFoundError

from cli.commands.shards.changer import Changer
from cli.commands.shards.plans import Plan, has_all_keys, merging, moving, nothing, splitting, spreading
from cli.commands.shards.shares import Seen
from cli.exit_codes import CommandFailed, ExitCode
from libs.formats.config.topic_share import ShareChange
from libs.shards.change import Write
from tests.support.memory_shards import AWAY, TOPIC, Shards, refused

PLANS: dict[str, tuple[str, Plan]] = {
    "split": ("", splitting(1, ["b", "c"], [])),
    "move": ("", moving(0, "c")),
    "merge": ("", merging([2, 1], "b")),
    "spread": ("b", spreading(["a", "b", "c"], 6)),
}


class Killed(BaseException):
    """The end of a program."""


def changer_of(shards: Shards, *, is_tried: bool = False) -> Changer:
    """A changer whose pauses take no time."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Changer(shards.clients, TOPIC, is_tried=is_tried, now_s=lambda: now[0], sleep=sleep)


def failing(error: BaseException, *, at: int, count: int = 1) -> Callable[[], None]:
    """Return a call that fails with an error from its call number `at` on, `count` times."""
    calls = iter(range(at + count))

    def fail() -> None:
        number = next(calls, None)
        if number is not None and number >= at:
            raise error

    return fail


@pytest.mark.parametrize(("home", "plan"), PLANS.values(), ids=PLANS)
def test_a_change(home: str, plan: Plan) -> None:
    """All steps are made, no change is under way after it, and each key has an open queue."""
    shards = Shards(home)
    change = changer_of(shards).make(plan)
    assert change is not None
    assert has_all_keys(shards.shares)
    assert all(share.change is None for share in shards.shares.values())
    assert {child.place for child in change.children} <= {
        (shard, number) for shard, numbers in shards.open_ids.items() for number in numbers
    }


def test_a_new_topic_at_a_shard_is_like_the_keeper() -> None:
    """A shard that lacks the topic gets it with the permissions and the retention of the keeper. Counts hold all."""
    shards = Shards("b")
    changer_of(shards).make(spreading(["a", "b", "c"], 6))
    assert shards.open_ids == {"a": [4, 5], "b": [6, 7], "c": [8, 9]}, "the parents are 0 to 3: queue 3 has messages"
    for log in shards.logs.values():
        assert log.topic is not None
        assert (log.topic.retention_hours, log.topic.is_writable) == (5, False)
    assert shards.logs["c"].topic is not None
    assert shards.logs["c"].topic.write_queue_count == 10


@pytest.mark.parametrize(("home", "plan"), PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("moment", ["before_write", "after_write"])
def test_a_killed_program_is_finished(home: str, plan: Plan, moment: str) -> None:
    """A program ends before or after each of its writes. `finish` makes the rest, and a repetition changes nothing."""
    whole = Shards(home)
    changer_of(whole).make(plan)
    for at in range(whole.write_count):
        shards = Shards(home)
        kill = failing(Killed(), at=at)
        for log in shards.logs.values():
            setattr(log, moment, kill)
        with pytest.raises(Killed):
            changer_of(shards).make(plan)
        assert shards.write_count == at + (moment == "after_write")
        changer_of(shards).make(nothing)
        is_begun = at > 0 or moment == "after_write"
        assert shards.open_ids == (whole if is_begun else Shards(home)).open_ids
        assert all(share.change is None for share in shards.shares.values())
        count = shards.write_count
        changer_of(shards).make(nothing)
        assert shards.write_count == count


def test_a_change_under_way_is_finished_first() -> None:
    """A command finishes the change of another program, notes it, and makes its own."""
    shards = Shards()
    shards.logs["a"].after_write = failing(Killed(), at=0)
    with pytest.raises(Killed):
        changer_of(shards).make(splitting(0, ["b"], []))
    changer = changer_of(shards)
    change = changer.make(moving(5, "a"))
    assert change is not None
    assert [one.parents for one in changer.finished] == [(("a", 0),)]
    assert shards.open_ids == {"a": [1, 7], "b": [2, 3, 6], "c": [4]}


def test_two_programs_at_the_same_time() -> None:
    """A change that another program makes between the reads and the write is kept, and the plan is made anew."""
    shards, others = Shards(), [splitting(2, ["c"], [])]

    def plan(seen: Seen) -> Write | None:
        if others:
            changer_of(shards).make(others.pop())
        return splitting(4, ["a"], [])(seen)

    changer = changer_of(shards)
    changer.make(plan)
    assert shards.open_ids == {"a": [0, 1, 7], "b": [3], "c": [5, 6]}
    assert changer.finished == []


def test_two_programs_with_the_same_plan() -> None:
    """Two programs that make the same change both have it."""
    shards, others = Shards(), list[ShareChange | None]()

    def plan(seen: Seen) -> Write | None:
        step = splitting(4, ["a"], [])(seen)
        if not others:
            others.append(changer_of(shards).make(splitting(4, ["a"], [])))
        return step

    change = changer_of(shards).make(plan)
    assert change == others[0]
    assert shards.open_ids == {"a": [0, 1, 6], "b": [2, 3], "c": [5]}


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_shard_that_is_away_changes_nothing(name: str) -> None:
    """If a shard does not answer at the begin, the error names it, and nothing was changed."""
    shards = Shards()
    shards.logs[name].before_read = failing(AWAY, at=0)
    with pytest.raises(CommandFailed, match=rf"SHARD_FAILED: shard {name}: .*nothing was changed") as caught:
        changer_of(shards).make(splitting(1, ["b"], []))
    assert caught.value.code is ExitCode.UNAVAILABLE
    assert shards.write_count == 0


@pytest.mark.parametrize("at", [0, 1])
def test_an_answer_that_is_lost_is_asked_for_again(at: int) -> None:
    """A write whose answer is lost is repeated, and the change is made once."""
    shards = Shards()
    shards.logs["a"].after_write = failing(AWAY, at=at, count=3)
    changer_of(shards).make(splitting(1, ["b"], []))
    assert shards.open_ids == {"a": [0], "b": [2, 3, 6], "c": [4, 5]}
    assert shards.write_count == 4


def test_a_shard_that_goes_away_during_a_change() -> None:
    """After half a minute the error says that the change is under way, and the command that finishes it."""
    shards = Shards()
    shards.logs["b"].before_write = failing(AWAY, at=0, count=10_000)
    changer = changer_of(shards)
    with pytest.raises(CommandFailed, match=r"CHANGE_UNDER_WAY: .*shard b: .*`reput shards finish orders`") as caught:
        changer.make(splitting(1, ["b"], []))
    assert caught.value.code is ExitCode.UNAVAILABLE
    shards.logs["b"].before_write = lambda: None
    changer_of(shards).make(nothing)
    assert shards.open_ids["b"] == [2, 3, 6]


def test_a_topic_with_too_many_queues_is_refused_before_the_change() -> None:
    """Queue numbers grow with each change. The first write is refused if the topic can't have the new queues."""
    shards = Shards()
    shards.logs["a"].queue_count_max = 7
    with pytest.raises(CommandFailed, match=r"SHARD_FAILED: shard a: BAD_ARGUMENT.*nothing was changed") as caught:
        changer_of(shards).make(splitting(3, ["b", "c"], []))
    assert caught.value.code is ExitCode.REFUSED
    assert shards.write_count == 0


def test_a_share_that_is_refused_for_ever() -> None:
    """Reading again has an end."""
    shards = Shards()
    shards.logs["a"].before_write = failing(refused("share"), at=0, count=10_000)
    with pytest.raises(CommandFailed, match="SHARD_FAILED: shard a: BAD_ARGUMENT"):
        changer_of(shards).make(splitting(1, ["b"], []))


def test_a_dry_run_changes_nothing() -> None:
    """The shares after a change are planned in memory, also after a change that would be finished first."""
    shards = Shards()
    shards.logs["a"].after_write = failing(Killed(), at=0)
    with pytest.raises(Killed):
        changer_of(shards).make(splitting(0, ["b"], []))
    count = shards.write_count
    changer = changer_of(shards, is_tried=True)
    assert changer.make(moving(5, "a")) is not None
    assert changer.seen.shares["a"].open_ids == [1, 7]
    assert len(changer.finished) == 1
    assert shards.write_count == count


def test_a_topic_that_no_shard_has() -> None:
    """It is not found."""
    shards = Shards("a")
    shards.logs["a"].topic = None
    with pytest.raises(NotFoundError):
        changer_of(shards).make(nothing)


def test_a_file_that_lacks_a_shard_is_refused() -> None:
    """Without a shard keys have no open queue, or a change has an unknown shard: nothing is changed."""
    shards = Shards()
    del shards.clients["b"]
    with pytest.raises(CommandFailed, match=r"CHANGE_REFUSED: .*do not have all keys"):
        changer_of(shards).make(moving(0, "c"))
    shards = Shards()
    shards.logs["a"].after_write = failing(Killed(), at=0)
    with pytest.raises(Killed):
        changer_of(shards).make(moving(0, "c"))
    del shards.clients["c"]
    with pytest.raises(CommandFailed, match="queues at c, which the file does not name"):
        changer_of(shards).make(nothing)


def test_a_shard_that_has_no_room_for_the_new_queue() -> None:
    """A shard refuses the number of queues before the change begins: no queue is sealed."""
    shards = Shards()
    shards.logs["c"].queue_count_max = 6
    with pytest.raises(CommandFailed, match="nothing was changed") as caught:
        changer_of(shards).make(splitting(0, ["b", "c"], []))
    assert "shard c" in str(caught.value)
    assert shards.write_count == 0
    assert all(not queue.is_sealed for share in shards.shares.values() for queue in share.queues)
