# SPDX-License-Identifier: Apache-2.0
"""Changes of topics over shards, by any programs at the same time that stop at any point."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from libs.formats.config.topic_share import HASH_MAX, QueueShare, ShareChange, TopicShare, dumps, loads
from libs.shards.change import (
    ChangeRefused,
    Write,
    begun,
    begun_from_whole,
    change_of,
    first_shares,
    keeper_of,
    merge,
    next_step,
    split,
)
from libs.shards.route import Route

SHARDS = ("a", "b", "c")
Plan = Callable[[Mapping[str, TopicShare]], ShareChange]


@dataclass
class Logs:
    """The shares at the logs of all shards, which take shares by the rules of the CommitLog."""

    shares: dict[str, TopicShare] = field(default_factory=lambda: dict(first_shares(SHARDS, 3)))

    def write(self, write: Write) -> bool:
        """Take a share, if it is newer. Returns whether it was taken, or was here."""
        before = self.shares.get(write.shard)
        if write.share == before:
            return True
        if before is not None and (write.share.version <= before.version or write.share.fault_after(before)):
            return False
        assert write.share.fault(write_queue_count=65_535) == ""
        self.shares[write.shard] = loads(dumps(write.share))
        return True


def finish(logs: Logs) -> None:
    """Make all steps of the change that is under way."""
    while (step := next_step(logs.shares)) is not None:
        assert logs.write(step)


def check(logs: Logs) -> None:
    """Each hash has a single open queue; numbers are unique; children have the keys of their parents alone."""
    queues = [queue for share in logs.shares.values() for queue in share.queues]
    assert len({queue.queue_id for queue in queues}) == len(queues)
    is_open = [queue for queue in queues if not queue.is_sealed]
    assert sum(queue.last_hash - queue.first_hash + 1 for queue in is_open) == HASH_MAX + 1
    by_id = {queue.queue_id: queue for queue in queues}
    route = Route(logs.shares)
    for queue in is_open:
        assert route.place_of_hash(queue.first_hash) == route.place_of_hash(queue.last_hash)
        for parent in queue.parents:
            assert by_id[parent.queue_id].is_sealed
            assert parent.queue_id in {queue.queue_id for queue in logs.shares[parent.shard].queues}


def test_a_split() -> None:
    """The keys of a queue go to new queues at the named shards, in equal parts."""
    logs = Logs()
    parent = logs.shares["b"].queues[0]
    logs.write(begun(logs.shares, split(logs.shares, 1, ["b", "c", "d"])))
    assert change_of(logs.shares) is not None
    finish(logs)
    check(logs)
    assert {shard: share.open_ids for shard, share in logs.shares.items()} == {
        "a": [0],
        "b": [3],
        "c": [2, 4],
        "d": [5],
    }
    children = [logs.shares["b"].queues[1], logs.shares["c"].queues[1], logs.shares["d"].queues[0]]
    assert (children[0].first_hash, children[2].last_hash) == (parent.first_hash, parent.last_hash)
    assert [child.parents for child in children] == [(("b", 1),)] * 3


def test_a_merge() -> None:
    """The keys of neighbours go to a new queue. Queues that are no neighbours are refused."""
    logs = Logs()
    with pytest.raises(ChangeRefused, match="0 and 2 have no neighbouring"):
        merge(logs.shares, [2, 0], "a")
    logs.write(begun(logs.shares, merge(logs.shares, [1, 0], "c")))
    finish(logs)
    check(logs)
    assert {shard: share.open_ids for shard, share in logs.shares.items()} == {"a": [], "b": [], "c": [2, 3]}
    assert logs.shares["c"].queues[1].parents == (("a", 0), ("b", 1))


def test_a_topic_of_one_store_is_spread() -> None:
    """A topic that was whole at a shard gets new queues at all shards. Its queues are sealed with the first write."""
    logs = Logs({})
    first = begun_from_whole("b", 4, SHARDS, 6)
    assert logs.write(first)
    assert logs.shares["b"].open_ids == []
    finish(logs)
    check(logs)
    assert {shard: share.open_ids for shard, share in logs.shares.items()} == {"b": [6, 7], "a": [4, 5], "c": [8, 9]}
    assert all(len(queue.parents) == 4 for queue in logs.shares["a"].queues)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (lambda shares: split(shares, 9, ["a"]), "no queue 9"),
        (lambda shares: merge(shares, [1], "a"), "two queues"),
        (lambda shares: merge(shares, [1, 1], "a"), "no neighbouring"),
        (lambda shares: split(shares, 1, ["a"] * 257), "1 to 256"),
        (lambda shares: split(shares, 1, ["a b"]), "'a b'"),
    ],
)
def test_what_is_refused(plan: Plan, text: str) -> None:
    """A refused change names its reason."""
    with pytest.raises(ChangeRefused, match=text):
        plan(Logs().shares)


def test_sealed_queues_and_changes_under_way_are_refused() -> None:
    """A sealed queue has no keys to give away, and a topic has a single change at a time."""
    logs = Logs()
    logs.write(begun(logs.shares, split(logs.shares, 1, ["a"])))
    with pytest.raises(ChangeRefused, match="under way"):
        split(logs.shares, 0, ["a"])
    finish(logs)
    with pytest.raises(ChangeRefused, match="sealed"):
        split(logs.shares, 1, ["a"])


@pytest.mark.parametrize("seed", range(200))
def test_programs_at_the_same_time(seed: int) -> None:
    """Programs read shares in turn, plan and write late, and may stop for ever: changes do not mix."""
    chance, logs = random.Random(seed), Logs()
    programs = [Program(logs, chance) for _ in range(4)]
    for _ in range(chance.randrange(150, 300)):
        at = chance.randrange(len(programs))
        if chance.random() < 0.03:
            programs[at] = Program(logs, chance)  # it was killed
        programs[at].go_on()
    finish(logs)
    check(logs)
    assert max(share.version for share in logs.shares.values()) >= 9, "at least two changes"


class Program:
    """A program that changes a topic: it reads the shares, the keeper's first, and makes the write that follows."""

    def __init__(self, logs: Logs, chance: random.Random) -> None:
        self._logs, self._chance = logs, chance
        self._read: dict[str, TopicShare] = {}
        self._left = [keeper_of(logs.shares)]

    def go_on(self) -> None:
        """Read the share of a shard, or write."""
        if self._left:
            shard = self._left.pop(0)
            if not self._read:
                others = [name for name in ("a", "b", "c", "d") if name != shard]
                self._left = self._chance.sample(others, len(others))
            if shard in self._logs.shares:
                self._read[shard] = self._logs.shares[shard]
            return
        if (write := next_step(self._read)) is None and (plan := self._plan()) is not None:
            write = begun(self._read, plan)
        if write is not None:
            self._logs.write(write)
        self._read, self._left = {}, [keeper_of(self._logs.shares)]

    def _plan(self) -> ShareChange | None:
        """Return the change of a queue by chance, None if the shares changed between the reads."""
        is_open = [queue for share in self._read.values() for queue in share.queues if not queue.is_sealed]
        if not is_open:
            return None
        is_open.sort(key=lambda queue: queue.first_hash)
        at = self._chance.randrange(len(is_open))
        shards = self._chance.choices(("a", "b", "c", "d"), k=self._chance.randrange(1, 4))
        if len(is_open) > 1 and self._chance.random() < 0.4:
            pair = is_open[at - 1 : at + 1] if at else is_open[:2]
            try:
                return merge(self._read, [queue.queue_id for queue in pair], shards[0])
            except ChangeRefused:  # the shares were read while they changed
                return split(self._read, is_open[at].queue_id, shards)
        return split(self._read, is_open[at].queue_id, shards)


def test_a_log_takes_no_share_that_undoes() -> None:
    """A newer share that opens a sealed queue, takes parents away, or replaces the change under way is refused."""
    logs = Logs()
    logs.write(begun(logs.shares, split(logs.shares, 0, ["b"])))
    step = next_step(logs.shares)
    assert step is not None
    logs.write(step)
    share = logs.shares["a"]
    opened = replace(share, version=99, queues=tuple(replace(queue, is_sealed=False) for queue in share.queues))
    assert "stays sealed" in opened.fault_after(share)
    change = share.change
    assert change is not None
    assert "under way" in replace(share, version=99, change=replace(change, version=98)).fault_after(share)
    finish(logs)
    child = logs.shares["b"].queues[-1]
    orphan = replace(logs.shares["b"], version=99, queues=(*logs.shares["b"].queues[:-1], replace(child, parents=())))
    assert "other hashes or parents" in orphan.fault_after(logs.shares["b"])
    assert QueueShare(1, 0, 0).parents == ()
