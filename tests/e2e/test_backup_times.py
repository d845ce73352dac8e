# SPDX-License-Identifier: Apache-2.0
"""Restores to times of a loaded store: messages, and the positions of groups of all kinds, as they were then."""

import calendar
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from reput_client import Client, ConsumerGroup

from tests.support.backup_load import (
    BAD,
    BURYING,
    KEEPERS,
    LATER,
    PAID,
    SHARING,
    SHOP,
    TOPIC,
    Journal,
    Load,
    connect,
    name_of,
)
from tests.support.backups import check_sound, created, restored
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e

DELIVERY = ("--delivery", "--delivery-port", "0")
BACKUP_COUNT, PAUSE_S = 4, 3.0
"""Backups under load, and the seconds before each."""
TIME_COUNT, LONG_TIME_COUNT = 3, 20


@dataclass
class Loaded:
    """The place with the backups of a store, and the journal of its load."""

    place: Path
    journal: Journal
    backups: list[dict[str, object]]

    @property
    def begin_ms(self) -> int:
        """The time when everything had been done once."""
        return round(max(min(span.end_ms for span in spans.values()) for spans in self.journal.spans.values()))

    def backup_after(self, until_ms: int, chance: random.Random) -> str:
        """Return a backup that was begun after a time."""
        ids = [str(one["backup_id"]) for one in self.backups if _created_ms(one) > until_ms]
        return chance.choice(ids)


def _created_ms(backup: dict[str, object]) -> int:
    """The begin of a backup, to the second below."""
    text = str(backup["backup_id"]).partition("-")[0]
    return calendar.timegm(time.strptime(text, "%Y%m%dT%H%M%SZ")) * 1000


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """A store under load, and backups of it that were taken meanwhile."""
    folder = tmp_path_factory.mktemp("loaded")
    with store(folder / "store", *DELIVERY) as running:
        load = Load(running.targets)
        with load.running():
            backups = []
            for _ in range(BACKUP_COUNT):
                time.sleep(PAUSE_S)
                backups.append(created(running, folder / "place"))
        time.sleep(1)
        backups.append(created(running, folder / "place"))
        yield Loaded(folder / "place", load.journal, backups)


@dataclass
class Comparison:
    """A restored store, beside the journal up to its time."""

    client: Client
    journal: Journal
    until_ms: int

    def run(self) -> None:
        """Compare everything."""
        self.offsets()
        sent = self.once(self.bodies(TOPIC), "sent")
        self.transactions()
        self.once([name_of(letter.message.body) for letter in self.client.dead_letters.list(BURYING)], "buried")
        bad = self.once(self.bodies(BAD), "badly sent")
        self.shared(TOPIC, SHARING, sent, "acked")
        self.shared(BAD, BURYING, bad, "buried")
        self.delayed()

    def once(self, names: list[str], kind: str) -> set[str]:
        """Each name is there once that must be, and none that must not."""
        again = [name for name, count in Counter(names).items() if count > 1]
        assert not again, (kind, again)
        missing, early = self.surely(kind) - set(names), set(names) - self.perhaps(kind)
        assert not missing, (kind, missing)
        assert not early, (kind, early)
        return set(names)

    def offsets(self) -> None:
        """A group is nowhere ahead of what it had committed, and not behind what the log surely had."""
        ends = [span for span in self.journal.spans["in the log"].values() if span.end_ms <= self.until_ms]
        known_ms = max((span.begin_ms for span in ends), default=0)
        kept = {group.name: {str(o.queue_id): o.queue_offset for o in group.offsets} for group in self.groups()}
        for group in KEEPERS:
            least = _furthest(self.journal.surely(group, known_ms))
            most = _furthest(self.perhaps(group))
            found = kept.get(group, {})
            for queue in {*found, *least}:
                assert least.get(queue, 0) <= found.get(queue, 0) <= most.get(queue, 0), (group, queue, least, found)
            assert {f"{queue}:{at}" for queue, at in found.items()} <= self.perhaps(group)

    def groups(self) -> list[ConsumerGroup]:
        """All groups that keep offsets."""
        return list(self.client.groups.list())

    def shared(self, topic: str, group: str, there: set[str], kind: str) -> None:
        """A group receives all that it had not settled, and nothing that it had."""
        wanted, forbidden = there - self.perhaps(kind), self.surely(kind)
        seen: set[str] = set()
        end_s = time.monotonic() + LIMIT_S
        with self.client.share_consumer(topic, group=group, invisible_s=600) as consumer:
            while not wanted <= seen:
                assert time.monotonic() < end_s, (group, len(wanted - seen), sorted(wanted - seen)[:5])
                seen |= {name_of(one.message.body) for one in consumer.receive(count=100, wait_s=1)}
            seen |= {name_of(one.message.body) for one in consumer.receive(count=100, wait_s=0.5)}
        assert not seen & forbidden, (group, seen & forbidden)
        assert seen <= there

    def transactions(self) -> None:
        """Committed messages are there, open transactions are open, and can be committed."""
        opened = {transaction.id for transaction in self.client.transactions.list(SHOP)}
        assert self.surely("halved") - self.perhaps("ended") <= opened
        assert opened <= self.perhaps("halved") - self.surely("ended")
        paid = self.once(self.bodies(PAID), "paid")
        for name in opened:
            self.client.transactions.commit(name)
        end_s = time.monotonic() + LIMIT_S
        while len(bodies := self.bodies(PAID)) < len(paid) + len(opened):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        assert sorted(bodies) == sorted([*paid, *opened])

    def delayed(self) -> None:
        """Each delayed message is delivered once."""
        end_s = time.monotonic() + LIMIT_S
        while not self.surely("timed") <= set(self.bodies(LATER)):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        self.once(self.bodies(LATER), "timed")

    def bodies(self, topic: str) -> list[str]:
        """The names of all messages of a topic."""
        found = []
        for queue in self.client.queues.list(topic):
            at = queue.min_queue_offset
            while at < queue.max_queue_offset:
                pulled = self.client.queues.pull(topic, queue.queue_id, at)
                found += [name_of(message.body) for message in pulled.messages]
                at = pulled.next_queue_offset
        return found

    def surely(self, kind: str) -> set[str]:
        """What must be in the restored store."""
        return self.journal.surely(kind, self.until_ms)

    def perhaps(self, kind: str) -> set[str]:
        """What may be in the restored store."""
        return self.journal.perhaps(kind, self.until_ms)


def _furthest(names: set[str]) -> dict[str, int]:
    """Return the highest offset by queue."""
    found: dict[str, int] = {}
    for queue, _, at in (name.partition(":") for name in names):
        found[queue] = max(found.get(queue, 0), int(at))
    return found


def compare(loaded: Loaded, folder: Path, count: int) -> None:
    """Restore to random times, start the services there, and compare."""
    chance = random.Random(count)
    last_ms = _created_ms(loaded.backups[-1])
    for number in range(count):
        until_ms = chance.randrange(loaded.begin_ms, last_ms)
        data_dir = folder / str(number)
        backup = loaded.backup_after(until_ms, chance)
        restored(loaded.place, data_dir, "--until", str(until_ms), "--backup", backup)
        with store(data_dir, *DELIVERY) as again:
            _wait_until_known(again)
            with connect(again.targets) as client:
                Comparison(client, loaded.journal, until_ms).run()
            assert again.stop().code in (0, 130)
        check_sound(data_dir)
        shutil.rmtree(data_dir)


def _wait_until_known(running: Store) -> None:
    """Wait until the Indexer answers for all messages and groups."""
    end_s = time.monotonic() + LIMIT_S
    while running.run("pull", TOPIC, "--queue", "0", "--count", "1").code or running.run("groups", "list").code:
        assert time.monotonic() < end_s
        time.sleep(0.1)


def test_restores_to_random_times(loaded: Loaded, tmp_path: Path) -> None:
    """Some times."""
    compare(loaded, tmp_path, TIME_COUNT)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_restores_to_many_random_times(loaded: Loaded, tmp_path: Path) -> None:
    """Twenty times."""
    compare(loaded, tmp_path, LONG_TIME_COUNT)
