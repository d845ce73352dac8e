# SPDX-License-Identifier: Apache-2.0
"""Random programs: the order of a key holds while queues are split, moved and merged, with many messages in flight.

The model is a log for each shard that stores or refuses a message when it arrives, and answers later. Questions are
answered with the share of the moment when they arrived, later, too.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from reput_client import QueueRange, ReputError, Topic
from reput_client.core.shards.chunks import key_hash
from reput_client.core.shards.entries import Entry
from reput_client.core.shards.routing import Placed

from clients.python.tests.shards.bench import AWAY, TOPIC, Bench, message_in, parts, refusal, share_of, topic_of

SHARDS, KEYS = ("a", "b", "c"), [f"key-{number}" for number in range(12)]
SEED_COUNT, STEP_COUNT = 150, 500
Record = tuple[int, str]
"""A queue and a body."""


@dataclass
class Store:
    """The shards: their queues, versions and logs. `opening` has the children that a change has not opened yet."""

    chance: random.Random
    queues: dict[str, list[QueueRange]] = field(default_factory=lambda: {shard: [] for shard in SHARDS})
    versions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SHARDS, 1))
    opening: list[tuple[str, QueueRange]] = field(default_factory=list)
    parents: list[tuple[str, int]] = field(default_factory=list)
    log: list[Record] = field(default_factory=list)
    arrived: dict[str, deque[tuple[Placed, int | None]]] = field(default_factory=dict)
    """Messages by shard with the queue that has stored them, None if it has refused them: not answered yet."""
    next_id: int = 3
    version: int = 1

    def __post_init__(self) -> None:
        self.arrived = {shard: deque() for shard in SHARDS}
        for shard, queue in zip(SHARDS, parts(3), strict=True):
            self.queues[shard].append(queue)

    def share(self, shard: str) -> Topic:
        """The topic as a shard tells it now."""
        return topic_of(share_of(self.versions[shard], *self.queues[shard]))

    def arrive(self, shard: str, placed: Placed) -> None:
        """Store or refuse a message."""
        message = message_in(placed)
        (queue,) = [one for one in self.queues[shard] if one.queue_id == message.queue_id]
        if not queue.is_sealed:
            self.log.append((message.queue_id, message.body.decode()))
        self.arrived[shard].append((placed, None if queue.is_sealed else message.queue_id))

    def change(self) -> None:
        """Make the next step of the change under way, or begin a change: all its parents are sealed first."""
        self.version += 1
        if self.parents:
            shard, queue_id = self.parents.pop()
            at = next(at for at, one in enumerate(self.queues[shard]) if one.queue_id == queue_id)
            self.queues[shard][at] = self.queues[shard][at]._replace(is_sealed=True)
            self.versions[shard] = self.version
        elif self.opening:
            shard, queue = self.opening.pop()
            self.queues[shard].append(queue)
            self.versions[shard] = self.version
        else:
            self._begin()

    def _begin(self) -> None:
        found = [(shard, one) for shard, queues in self.queues.items() for one in queues if not one.is_sealed]
        found.sort(key=lambda entry: entry[1].first_hash)
        at, kind = self.chance.randrange(len(found)), self.chance.choice(["split", "move", "merge"])
        chosen = found[at : at + 2] if kind == "merge" else found[at : at + 1]
        first, last = chosen[0][1].first_hash, chosen[-1][1].last_hash
        middle = (first + last) // 2
        ranges = [(first, middle), (middle + 1, last)] if kind == "split" and last > first else [(first, last)]
        self.parents = [(shard, one.queue_id) for shard, one in chosen]
        for low, high in ranges:
            self.opening.append((self.chance.choice(SHARDS), QueueRange(self.next_id, low, high)))
            self.next_id += 1


@dataclass
class Program:
    """A random program: each step sends, lets a message arrive, answers, changes the queues, or asks."""

    seed: int

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.store = Store(self.chance)
        self.bench = Bench(SHARDS, chance=self.chance)
        self.asked: dict[str, Topic] = {}
        self.counts = dict.fromkeys([*KEYS, ""], 0)

    def run(self) -> None:
        """Run all steps, and then go on until each message has its outcome."""
        steps = [self.send] * 4 + [self.arrive] * 3 + [self.answer] * 3 + [self.change, self.ask, self.tell]
        for _ in range(STEP_COUNT):
            self.bench.now_s += self.chance.choice([0, 0.001, 0.03])
            self.chance.choice(steps)()
        for _ in range(STEP_COUNT * 20):
            if self.bench.routing.is_idle:
                return
            self.bench.now_s += 0.01
            self.chance.choice([self.arrive, self.answer, self.finish, self.ask, self.tell])()
        raise AssertionError(f"no outcome for {self.bench.routing.unsettled_count} messages, seed {self.seed}")

    def send(self) -> None:
        key = self.chance.choice([*KEYS, ""])
        self.bench.add(f"{key}/{self.counts[key]}", key=key or None)
        self.counts[key] += 1

    def arrive(self) -> None:
        shard = self.chance.choice(SHARDS)
        for _ in range(min(self.chance.randrange(1, 6), len(self.bench.sent[shard]))):
            self.store.arrive(shard, self.bench.sent[shard].popleft())

    def answer(self) -> None:
        shard = self.chance.choice(SHARDS)
        for _ in range(min(self.chance.randrange(1, 6), len(self.store.arrived[shard]))):
            (_, _, entry), queue_id = self.store.arrived[shard].popleft()
            if queue_id is None:
                self.bench.failed(entry, refusal(0))
            else:
                self.bench.stored(entry)

    def change(self) -> None:
        self.store.change()

    def finish(self) -> None:
        if self.store.parents or self.store.opening:
            self.store.change()

    def ask(self) -> None:
        shard = self.chance.choice(SHARDS)
        if shard not in self.asked and self.bench.routing.question(shard) is not None:
            self.asked[shard] = self.store.share(shard)

    def tell(self) -> None:
        shard = self.chance.choice(SHARDS)
        if shard in self.asked:
            answer = self.asked.pop(shard)
            lost = self.chance.random() < 0.2
            self.bench.routing.answer(shard, TOPIC, AWAY if lost else answer)
            self.bench.go_on()


@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_the_order_of_a_key_holds(seed: int) -> None:
    """Each message is stored once, in the order of its key, in a queue whose range has the key."""
    program = Program(seed)
    program.run()
    bodies = [f"{key}/{number}" for key, count in program.counts.items() for number in range(count)]
    assert program.bench.outcomes == dict.fromkeys(bodies, "stored")
    by_key: dict[str, list[int]] = {}
    ranges = {queue.queue_id: queue for queues in program.store.queues.values() for queue in queues}
    for queue_id, body in program.store.log:
        key, number = body.split("/")
        by_key.setdefault(key, []).append(int(number))
        assert not key or ranges[queue_id].first_hash <= key_hash(key) <= ranges[queue_id].last_hash
    assert sorted(by_key.pop("", [])) == list(range(program.counts[""]))
    assert all(numbers == list(range(len(numbers))) for numbers in by_key.values()), by_key
    assert program.bench.routing.unsettled_bytes == 0


def test_messages_are_refused_in_most_programs() -> None:
    """The programs above have messages in flight when a queue is sealed."""
    refused_count = 0
    for seed in range(20):
        program = Program(seed)
        noted = program.bench.failed

        def note(entry: Entry, error: ReputError, noted: Callable[[Entry, ReputError], None] = noted) -> None:
            nonlocal refused_count
            refused_count += 1
            noted(entry, error)

        program.bench.failed = note  # type: ignore[method-assign]
        program.run()
    assert refused_count > 100
