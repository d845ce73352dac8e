# SPDX-License-Identifier: Apache-2.0
"""A load of all kinds for a store whose backups are tested, with a journal of its own: each action with its time."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import reput_client
from reput_client import Client, NewMessage

TOPIC, LATER, PAID, BAD = "orders", "later", "paid", "bad"
KEEPERS = ("nightly", "weekly")
"""Groups that keep offsets, and commit often and seldom."""
SHARING, BURYING, SHOP = "billing", "poison", "shop"


class Span(NamedTuple):
    """The time of a call, in milliseconds since 1970."""

    begin_ms: float
    end_ms: float


@dataclass
class Journal:
    """The actions, by kind and name."""

    spans: dict[str, dict[str, Span]] = field(default_factory=lambda: defaultdict(dict))

    @contextmanager
    def doing(self, kind: str, *names: str) -> Iterator[None]:
        """Note calls with these effects. A call that fails may have them."""
        begin_ms = time.time() * 1000
        end_ms = float("inf")
        try:
            yield
            end_ms = time.time() * 1000
        finally:
            for name in names:
                self.spans[kind].setdefault(name, Span(begin_ms, end_ms))

    def surely(self, kind: str, until_ms: float) -> set[str]:
        """The actions that were answered up to a time."""
        return {name for name, span in self.spans[kind].items() if span.end_ms <= until_ms}

    def perhaps(self, kind: str, until_ms: float) -> set[str]:
        """The actions that were begun up to a time, to the whole millisecond."""
        return {name for name, span in self.spans[kind].items() if span.begin_ms < until_ms + 1}


@dataclass
class Load:
    """Clients of all kinds, each in a thread, until the end of the block."""

    targets: dict[str, str]
    journal: Journal = field(default_factory=Journal)
    failures: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _number: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all clients."""
        kinds = (produce, wait, trade, share, bury, lock, *(keeper(group) for group in KEEPERS))
        threads = [threading.Thread(target=self._run, args=(kind, number)) for number, kind in enumerate(kinds)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        assert not self.failures, self.failures

    def names(self, count: int, prefix: str) -> list[str]:
        """Return names that no message has."""
        self._number += count
        return [f"{prefix}-{number}" for number in range(self._number - count, self._number)]

    def _run(self, kind: "Kind", seed: int) -> None:
        try:
            with connect(self.targets) as client:
                steps = iter(kind(client, self, random.Random(seed)))
                while not self._over.is_set():
                    self._over.wait(next(steps))
        except BaseException as error:  # noqa: BLE001 - the test gets it
            self.failures.append(error)


def connect(targets: dict[str, str]) -> Client:
    """Return a client of a store."""
    return reput_client.connect(
        commitlog=targets["commitlog"], indexer=targets["indexer"], delivery=targets["delivery"]
    )


Kind = Callable[[Client, Load, random.Random], Iterable[float]]
"""A client: yields the seconds until its next step."""


def produce(client: Client, load: Load, chance: random.Random) -> Iterator[float]:
    """Append some messages at a time."""
    with client.producer() as producer:
        while True:
            names = load.names(chance.randrange(1, 12), "o")
            with load.journal.doing("sent", *names):
                pending = [producer.send_message(NewMessage(TOPIC, _body(name, 900))) for name in names]
                producer.flush()
                for sent in pending:
                    sent.result()
            yield 0.03


def wait(client: Client, load: Load, chance: random.Random) -> Iterator[float]:
    """Append messages for later."""
    with client.producer() as producer:
        while True:
            names = load.names(2, "t")
            with load.journal.doing("timed", *names):
                timed = NewMessage(LATER, _body(names[0]), delay_s=chance.uniform(0.2, 4))
                levelled = NewMessage(LATER, _body(names[1]), delay_level=chance.randrange(1, 3))
                for sent in (producer.send_message(timed), producer.send_message(levelled)):
                    sent.result()
            yield 0.1


def trade(client: Client, load: Load, chance: random.Random) -> Iterator[float]:
    """Begin transactions. Some are committed, some rolled back, some left open."""
    while True:
        (name,) = load.names(1, "p")
        with load.journal.doing("halved", name):
            begun = client.transactions.begin(PAID, _body(name), group=SHOP, unique_id=name, check_after_s=600)
        yield chance.uniform(0, 0.3)
        end = chance.choice(("paid", "undone", ""))
        if end:
            with load.journal.doing("ended", name), load.journal.doing(end, name):
                (begun.commit if end == "paid" else begun.rollback)()


def share(client: Client, load: Load, chance: random.Random) -> Iterator[float]:
    """Share the messages: most are acknowledged, some given back, and some forgotten until their lease is over."""
    while not load.journal.spans["sent"]:
        yield 0.05
    with client.share_consumer(TOPIC, group=SHARING, invisible_s=2, hold_s_max=2) as consumer:
        while True:
            found = consumer.receive(count=16, wait_s=0.2)
            done = [each for each in found if chance.random() < 0.8]
            if done:
                with load.journal.doing("acked", *(name_of(each.message.body) for each in done)):
                    consumer.ack(*done)
            given = [each for each in found if each not in done]
            if given and chance.random() < 0.5:
                consumer.nack(*given, delay_s=1)
            yield 0.02


def bury(client: Client, load: Load, _: random.Random) -> Iterator[float]:
    """Send messages that a group can't process, and move most of them to its dead letters."""
    with client.producer() as producer, client.share_consumer(BAD, group=BURYING, invisible_s=2) as consumer:
        while True:
            names = load.names(3, "b")
            with load.journal.doing("badly sent", *names):
                for sent in [producer.send_message(NewMessage(BAD, _body(name))) for name in names]:
                    sent.result()
            found = consumer.receive(count=2, wait_s=1)
            if found:
                with load.journal.doing("buried", *(name_of(each.message.body) for each in found)):
                    consumer.bury(*found)
            yield 0.1


def keeper(group: str) -> Kind:
    """Return a reader that commits its offsets: `nightly` at each step, `weekly` seldom."""

    def keep(client: Client, load: Load, chance: random.Random) -> Iterator[float]:
        while not load.journal.spans["sent"]:
            yield 0.05
        with client.consumer(TOPIC, group=group) as consumer:
            while True:
                consumer.poll_many(chance.randrange(1, 40), 0.2)
                names = [f"{queue.queue_id}:{at}" for queue, at in consumer.positions().items()]
                with load.journal.doing(group, *names):
                    consumer.commit()
                yield 0.05 if group == KEEPERS[0] else 1.5

    return keep


def lock(client: Client, load: Load, _: random.Random) -> Iterator[float]:
    """Reset a group, whose answer says that the log has all positions of before."""
    while not load.journal.spans["acked"]:
        yield 0.05
    while True:
        with load.journal.doing("in the log", *load.names(1, "r")):
            client.groups.reset("reset", TOPIC, "latest")
        yield 0.5


def name_of(body: bytes) -> str:
    """Return the name of a message."""
    return body.split(b" ")[0].decode()


def _body(name: str, size: int = 0) -> bytes:
    return f"{name} {'x' * size}".encode()
