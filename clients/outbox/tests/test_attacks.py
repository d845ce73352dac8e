# SPDX-License-Identifier: Apache-2.0
"""Attacks on the promise: refused rows, late commits, backups, copies, forgotten writers, deleted topics, clocks."""

import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_reput import MemoryReput, Reput
from pytest_reput.processes import ProcessReput
from reput_outbox import RelaySettings
from reput_outbox.command import status_of
from reput_outbox.core.rows import State
from sqlalchemy import create_engine, make_url, text

from clients.outbox.tests.postgres_server import PostgresServer
from clients.outbox.tests.shop import FAST, ORDERS, OUTBOX, Shop, bodies, check_once, until


@pytest.mark.reput(commitlog={"auto_create_topics": False})
def test_a_refused_row_stops_only_its_key(reput: MemoryReput, shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """A row that the store refuses waits with its reason, the rows of its key behind it; all others are sent."""
    topic, missing = reput.topic(), reput.name("missing")
    with shop.relay(reput) as relay:
        for number in range(40):
            shop.buy(missing if number % 4 == 0 else topic, f"buyer{number % 4}", number)
        until(lambda: shop.count(State.SENT) == 30 and shop.count(State.PENDING, State.ASSIGNED) == 0)
        until(lambda: "TOPIC_NOT_FOUND" in str(shop.database.transact(status_of)["refused"]))  # between two attempts
        assert relay.metrics.refused_count >= 1
        assert [record for record in caplog.records if record.levelno == logging.ERROR and "refused" in record.message]
        reput.client().topics.create(missing, read_queue_count=2, write_queue_count=2)
        until(shop.is_sent)
    check_once(shop.orders(), bodies(reput, topic) + bodies(reput, missing))


def test_a_row_that_is_too_large_is_discarded(reput: MemoryReput, shop: Shop) -> None:
    """A row above the store's limit is found within its batch. The rows behind it go on when it is discarded."""
    topic = reput.topic()
    with shop.engine.begin() as connection:
        for number in range(20):
            body = b"k %d" % number if number != 7 else bytes(1 << 20)
            OUTBOX.add(connection, topic, body, key="k" if number >= 5 else f"o{number}")
    with shop.relay(reput, RelaySettings(poll_s=0.02, retry_s=1e6, batch_bytes=4 << 20)):
        until(lambda: shop.count(State.REFUSED) == 1 and shop.count(State.BLOCKED) == 12)
        until(lambda: shop.count(State.SENT) == 7)
        (refused,) = shop.database.transact(status_of)["refused"]
        assert shop.database.transact(lambda table: table.discard(refused["id"]))
        until(shop.is_sent)
    assert sorted(bodies(reput, topic)) == sorted(f"k {number}" for number in range(20) if number != 7)


def test_a_transaction_that_commits_late(reput: MemoryReput, postgres: PostgresServer) -> None:
    """A row with a smaller id, which became visible after larger ones were sent, is sent as well."""
    name, topic = "late", reput.topic()
    postgres.create(name)
    shop = Shop(create_engine(postgres.url(name)))
    with shop.relay(reput), shop.engine.connect() as late:
        late.execute(ORDERS.insert().values(buyer="late", number=0))
        OUTBOX.add(late, topic, b"late 0", key="late")
        shop.buy(topic, "early", 1)
        until(lambda: shop.count(State.SENT) == 1)
        late.commit()
        until(lambda: shop.count(State.SENT) == 2)
    check_once(shop.orders(), bodies(reput, topic))
    shop.engine.dispose()


class Kept:
    """A copy of a shop's database, as a backup is."""

    def __init__(self, shop: Shop, folder: Path, postgres: PostgresServer | None) -> None:
        self._shop, self._folder, self._postgres = shop, folder, postgres
        self._name = make_url(shop.engine.url).database or ""
        shop.engine.dispose()
        if postgres is None:
            shutil.copy(self._name, folder / "kept.db")
        else:
            postgres.create(f"{self._name}_kept", self._name)

    def restore(self) -> None:
        """Put the copy in the place of the database."""
        self._shop.engine.dispose()
        if self._postgres is None:
            shutil.copy(self._folder / "kept.db", self._name)
        else:
            self._postgres.drop(self._name)
            self._postgres.rename(f"{self._name}_kept", self._name)

    def shop(self) -> Shop:
        """Return a second program on the copy."""
        if self._postgres is None:
            return Shop(create_engine(f"sqlite:///{self._folder / 'kept.db'}"))
        return Shop(create_engine(self._postgres.url(f"{self._name}_kept")))


@pytest.fixture
def keep(shop: Shop, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[type[Kept]]:
    """Make a copy of the shop's database by a call."""
    server = request.getfixturevalue("postgres") if shop.engine.dialect.name == "postgresql" else None
    return lambda: Kept(shop, tmp_path, server)  # type: ignore[misc]


def test_a_database_that_was_restored(reput: MemoryReput, shop: Shop, keep: type[Kept]) -> None:
    """Rows that were sent after the backup are pending again, and are not sent again. New rows are sent."""
    topic = reput.topic()
    settings = RelaySettings(poll_s=0.02, batch_rows=4, lease_s=0.5)
    with shop.relay(reput, settings):
        for number in range(10):
            shop.buy(topic, f"buyer{number % 3}", number)
        until(shop.is_sent)
    for number in range(10, 20):
        shop.buy(topic, f"buyer{number % 3}", number)
    kept = keep()  # type: ignore[call-arg]
    with shop.relay(reput, RelaySettings(poll_s=0.02, batch_rows=7)):
        until(shop.is_sent)
    kept.restore()
    assert shop.count(State.PENDING) == 10
    for number in range(20, 30):
        shop.buy(topic, f"buyer{number % 3}", number)
    with shop.relay(reput, settings) as relay:
        until(shop.is_sent)
    assert relay.metrics.renewal_count >= 1
    assert relay.metrics.found_count == 10
    check_once(shop.orders(), bodies(reput, topic))


def test_delayed_rows_of_a_database_that_was_restored(reput: MemoryReput, shop: Shop, keep: type[Kept]) -> None:
    """A delayed message that waits in the store is found there, so it comes once."""
    topic = reput.topic()
    with shop.engine.begin() as connection:
        OUTBOX.add(connection, topic, b"k 0", key="k", delay_s=3600)
        OUTBOX.add(connection, topic, b"k 1", key="k", delay_s=3600)
    kept = keep()  # type: ignore[call-arg]
    with shop.relay(reput, RelaySettings(poll_s=0.02, batch_rows=1)):
        until(shop.is_sent)
    kept.restore()
    with shop.relay(reput) as relay:
        until(shop.is_sent)
    assert relay.metrics.found_count == 2
    reput.advance(hours=1, minutes=1)
    until(lambda: len(bodies(reput, topic)) == 2)
    assert sorted(bodies(reput, topic)) == ["k 0", "k 1"]


def test_a_copy_of_the_database_runs_as_well(reput: MemoryReput, shop: Shop, keep: type[Kept]) -> None:
    """Two databases with the same writer: the rows that each adds after the copy was made are sent once."""
    topic = reput.topic()
    with shop.relay(reput):
        for number in range(10):
            shop.buy(topic, f"both{number % 3}", number)
        until(shop.is_sent)
    copy = keep().shop()  # type: ignore[call-arg]
    with shop.relay(reput), copy.relay(reput):
        for number in range(10, 40):
            shop.buy(topic, "first", number)
            copy.buy(topic, "second", number)
        until(lambda: shop.is_sent() and copy.is_sent())
    wanted = sorted(set(shop.orders()) | set(copy.orders()))
    assert len(wanted) == 70
    found = bodies(reput, topic)
    assert sorted(found) == wanted
    copy.engine.dispose()


@pytest.mark.reput(commitlog={"writer_batch_count_max": 1, "writer_count_max": 1})
def test_a_writer_that_the_store_has_forgotten(reput: MemoryReput, shop: Shop) -> None:
    """With too many other writers the store forgets ours: the relay asks for each row, and goes on as a new writer."""
    topic = reput.topic()
    with shop.relay(reput) as relay:
        for number in range(30):
            shop.buy(topic, "buyer", number)
            until(shop.is_sent)
            if number % 10 == 5:
                with reput.client().writer(f"other-{number}") as other:
                    other.append([_message(reput.topic())])
    assert relay.metrics.renewal_count >= 3
    check_once(shop.orders(), bodies(reput, topic))


@pytest.mark.reput(commitlog={"auto_create_topics": False})
def test_a_topic_that_is_deleted_and_made_again(reput: MemoryReput, shop: Shop) -> None:
    """Rows that were sent before stay deleted, rows that wait meanwhile are sent to the new topic."""
    topic = reput.topic()
    operator = reput.connect(token=reput.operator_token)
    with shop.relay(reput):
        shop.buy(topic, "buyer", 0)
        until(shop.is_sent)
        operator.topics.delete(topic)
        shop.buy(topic, "buyer", 1)
        shop.buy(topic, "buyer", 2)
        until(lambda: shop.count(State.REFUSED) == 1)
        operator.topics.create(topic, read_queue_count=2, write_queue_count=2)
        until(shop.is_sent)
    assert bodies(reput, topic)[-2:] == ["buyer 1", "buyer 2"]


def test_a_store_that_was_restored(shop: Shop, tmp_path: Path) -> None:
    """Messages that a restored store has lost are sent again from the rows that are kept."""
    store = ProcessReput(tmp_path / "store" if (tmp_path / "store").mkdir() is None else tmp_path)
    try:
        topic = store.topic()
        settings = RelaySettings(poll_s=0.02, batch_rows=3, lease_s=0.5)
        with shop.relay(store, settings):
            for number in range(10):
                shop.buy(topic, "buyer", number)
            until(shop.is_sent)
        store.stop()
        shutil.copytree(store.directory / "data", tmp_path / "kept", symlinks=True)
        store.start()
        with shop.relay(store, settings):
            for number in range(10, 25):
                shop.buy(topic, "buyer", number)
            until(shop.is_sent)
        store.stop()
        shutil.rmtree(store.directory / "data")
        shutil.move(tmp_path / "kept", store.directory / "data")
        store.start()
        with shop.relay(store, settings) as relay:
            shop.buy(topic, "buyer", 25)
            until(shop.is_sent)
            until(lambda: relay.metrics.lost_batch_count)
            until(shop.is_sent)
        check_once(shop.orders(), bodies(store, topic))
    finally:
        store.close()


def test_a_store_that_was_replaced(reput: MemoryReput, reput_processes: Reput, shop: Shop) -> None:
    """A new and empty store gets the rows that are not sent yet, in their order."""
    topic = reput.topic()
    with shop.relay(reput):
        for number in range(3):
            shop.buy(topic, "buyer", number)
        until(shop.is_sent)
    for number in range(3, 9):
        shop.buy(topic, "buyer", number)
    reput_processes.client().topics.create(topic, read_queue_count=2, write_queue_count=2)
    with shop.relay(reput_processes) as relay:
        until(shop.is_sent)
    assert relay.metrics.renewal_count == 1
    assert bodies(reput_processes, topic) == shop.orders()[3:]


def test_a_clock_that_jumps(reput: MemoryReput, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock says, rows are sent once. A clock that is ahead only ends the time of sent rows early."""
    topic, real = reput.topic(), time.time_ns
    with shop.relay(reput, FAST):
        for number, hours in enumerate((0, 5, -5, 50, -500, 0)):
            monkeypatch.setattr(time, "time_ns", lambda hours=hours: real() + hours * 3600 * 10**9)
            shop.buy(topic, "buyer", number)
            until(shop.is_sent)
    shop.buy(topic, "buyer", 6)
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10**15)
    assert shop.database.transact(lambda table: table.clean(3600)) == shop.count(State.SENT) + 6
    assert shop.count(State.PENDING) == 1
    monkeypatch.undo()
    with shop.relay(reput):
        until(shop.is_sent)
    check_once(shop.orders(), bodies(reput, topic))


def test_sent_rows_are_deleted(reput: MemoryReput, shop: Shop) -> None:
    """With `keep_s` 0 no sent row stays; without the tables the relay waits and says why."""
    topic = reput.topic()
    with shop.relay(reput, RelaySettings(poll_s=0.02, keep_s=0)):
        shop.buy(topic, "buyer", 0)
        until(lambda: bodies(reput, topic))
        until(lambda: shop.count(*State) == 0)
    with shop.engine.begin() as connection:
        connection.execute(text("DROP TABLE reput_outbox"))
    with shop.relay(reput) as relay:
        until(lambda: relay.metrics.failure_count)


def _message(topic: str):  # type: ignore[no-untyped-def]
    from reput_client import NewMessage

    return NewMessage(topic, b"x")
