# SPDX-License-Identifier: Apache-2.0
"""SIGKILL for relays, database and store at random times while orders are written. `KILLS=200 SEED=3` for more."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_reput.processes import ProcessReput
from reput_outbox import DatabaseTrouble
from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from clients.outbox.tests.postgres_server import PostgresServer
from clients.outbox.tests.shop import Shop, bodies, check_once, until
from tests.support.patience import LIMIT_S

KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("SEED", "1"))
BUYERS_OF_A_WRITER = 3
WRITERS = 3
HOLDER_S = 10.0
RELAY = (sys.executable, "-m", "reput_outbox", "relay")
SETTINGS = ("--lease-s", "0.5", "--poll-s", "0.05", "--batch-rows", "20", "--backoff-max-s", "0.3")


class RelayProcess:
    """A relay as a process."""

    def __init__(self, url: str, store: ProcessReput, log: Path) -> None:
        self._environment = {**os.environ, **store.environment, "REPUT_OUTBOX_DATABASE": url}
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*RELAY, *SETTINGS], env=self._environment, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        """The process that runs, or ran last."""
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT_S)

    def stop(self) -> None:
        """End it with SIGTERM, which it obeys."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(LIMIT_S) == 0, self._log.read_text()[-2000:]


class Buyers:
    """Threads that write orders, a fifth of them in transactions that roll back."""

    def __init__(self, shop: Shop, topic: str, chance: random.Random) -> None:
        self._shop, self._topic, self._is_over = shop, topic, threading.Event()
        self.failure_count = 0
        self._threads = [
            threading.Thread(target=self._write, args=(index, random.Random(chance.random())))
            for index in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _write(self, index: int, chance: random.Random) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            buyer = f"buyer{index}-{chance.randrange(BUYERS_OF_A_WRITER)}"
            try:
                self._shop.buy(self._topic, buyer, number, fails=chance.random() < 0.2)
            except SQLAlchemyError:  # the database was killed: the order is there, or it is not
                self.failure_count += 1
                time.sleep(0.05)
            time.sleep(chance.random() * 0.01)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProcessReput]:
    """A store of this test's own."""
    (tmp_path / "store").mkdir()
    running = ProcessReput(tmp_path / "store", start_timeout_s=LIMIT_S)
    yield running
    running.close()


def _holder(shop: Shop, relays: list[RelayProcess]) -> RelayProcess | None:
    """Wait until a relay that lives sends, and return it, None if that takes long: the database is away."""
    end_s = time.monotonic() + HOLDER_S
    while time.monotonic() < end_s:
        with contextlib.suppress(DatabaseTrouble):
            holder = shop.database.transact(lambda table: table.lane()).holder
            for relay in relays:
                if f":{relay.pid}:" in holder:
                    return relay
        time.sleep(0.05)
    return None


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_each_committed_order_is_one_message(kind: str, store: ProcessReput, tmp_path: Path) -> None:
    """After all kills each committed order is one message, in order by buyer, and no other message is there."""
    chance, topic = random.Random(SEED), store.topic()
    database = PostgresServer() if kind == "postgresql" else None
    if database is not None:
        database.create("shop")
    url = database.url("shop") if database is not None else f"sqlite:///{tmp_path / 'shop.db'}"
    shop = Shop(create_engine(url, pool_pre_ping=True))
    relays = [RelayProcess(url, store, tmp_path / f"relay{number}.log") for number in range(2)]
    buyers = Buyers(shop, topic, chance)
    kills: Counter[str] = Counter()
    starting = threading.Thread()
    try:
        for _ in range(KILLS):
            kinds = ["relay", *(["database"] if database else []), *([] if starting.is_alive() else ["store"])]
            victim = chance.choices(kinds, [{"relay": 5}.get(kind, 2) for kind in kinds])[0]
            kills[victim] += 1
            holder = _holder(shop, relays) or chance.choice(relays)
            time.sleep(chance.random() * 0.5)
            killed = {"relay": holder, "database": database, "store": store}[victim]
            assert killed is not None
            killed.kill()
            time.sleep(chance.random() * 0.3)
            if victim == "store":  # it takes seconds, in which the others are killed as well
                starting = threading.Thread(target=store.start)
                starting.start()
            else:
                killed.start()
        starting.join(LIMIT_S)
        buyers.stop()
        until(shop.is_sent, LIMIT_S)
        for relay in relays:
            relay.stop()
        orders, found = shop.orders(), bodies(store, topic)
        logs = "".join((tmp_path / f"relay{number}.log").read_text() for number in range(2))
        print(
            f"{kind}, seed {SEED}: {dict(kills)}; {len(orders)} orders, {len(found)} messages, "
            f"{buyers.failure_count} failures of buyers, {logs.count('takes over')} times a relay took over, "
            f"{logs.count('goes on as a new writer')} new writers"
        )
        check_once(orders, found)
        assert len(orders) > KILLS
    finally:
        buyers.stop()
        if starting.is_alive():
            starting.join(LIMIT_S)
        for relay in relays:
            relay.kill()
        shop.engine.dispose()
        if database is not None:
            database.close()
