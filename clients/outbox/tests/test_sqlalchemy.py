# SPDX-License-Identifier: Apache-2.0
"""The outbox of SQLAlchemy: sessions, asyncio, schemas, names, notifications, and fields that are refused."""

import asyncio
import time
from datetime import UTC, datetime

import pytest
from pytest_reput import MemoryReput
from reput_outbox import AsyncRelay, OutboxError, Relay, RelaySettings
from reput_outbox.core.rows import State
from reput_outbox.sqlalchemy import AsyncSqlDatabase, Outbox, SqlDatabase
from sqlalchemy import MetaData, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from clients.outbox.tests.postgres_server import PostgresServer
from clients.outbox.tests.shop import FAST, OUTBOX, Shop, bodies, until


class Base(DeclarativeBase):
    """Models with an outbox beside them."""


class Order(Base):
    """An order."""

    __tablename__ = "orm_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    buyer: Mapped[str]


MODELS_OUTBOX = Outbox(Base.metadata, name="models_outbox")


def test_a_session_with_models(reput: MemoryReput, url: str) -> None:
    """A model and a message are written by a session; savepoints that roll back take their messages with them."""
    topic, engine = reput.topic(), create_engine(url)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Order(buyer="anna"))
        MODELS_OUTBOX.add(session, topic, b"anna", key="anna")
        inner = session.begin_nested()
        MODELS_OUTBOX.add(session, topic, b"inner", key="anna")
        inner.rollback()
    database = SqlDatabase(engine, MODELS_OUTBOX)
    with Relay(database, FAST, connect=lambda: reput.connect(timeout_s=10)):
        until(lambda: database.transact(lambda table: table.counts())[State.SENT] == 1)
    assert bodies(reput, topic) == ["anna"]
    engine.dispose()


async def test_asyncio(reput: MemoryReput, postgres: PostgresServer) -> None:
    """An AsyncSession writes, and an AsyncRelay in the same event loop sends, until it is cancelled."""
    postgres.create("asyncio")
    topic, engine = reput.topic(), create_async_engine(postgres.url("asyncio"))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    relay = AsyncRelay(AsyncSqlDatabase(engine, MODELS_OUTBOX), FAST, connect=lambda: reput.connect(timeout_s=10))
    running = asyncio.create_task(relay.run())
    for number in range(10):
        async with AsyncSession(engine) as session:
            session.add(Order(buyer="anna"))
            await MODELS_OUTBOX.add_async(session, topic, b"%d" % number, key="anna")
            await (session.rollback() if number % 5 == 0 else session.commit())
    async with asyncio.timeout(60):
        while relay.metrics.sent_count < 8:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with engine.connect() as connection:
        holder = await connection.scalar(text("SELECT holder FROM models_outbox_relay"))
    assert holder == ""
    assert bodies(reput, topic) == [str(number) for number in range(10) if number % 5]
    await engine.dispose()


def test_a_notification_wakes_the_relay(reput: MemoryReput, postgres: PostgresServer) -> None:
    """With PostgreSQL an idle relay does not poll: a row is sent long before it would look again."""
    postgres.create("notified")
    topic, shop = reput.topic(), Shop(create_engine(postgres.url("notified")))
    with shop.relay(reput, RelaySettings(poll_s=1000, lease_s=3000)) as relay:
        for number in range(5):
            shop.buy(topic, "buyer", number)
            until(lambda number=number: relay.metrics.sent_count == number + 1)
    assert len(bodies(reput, topic)) == 5
    shop.engine.dispose()


def test_a_relay_that_listens_survives_the_database(reput: MemoryReput) -> None:
    """After a crash of the database the relay connects and listens again."""
    server = PostgresServer()
    try:
        server.create("shop")
        topic, shop = reput.topic(), Shop(create_engine(server.url("shop"), pool_pre_ping=True))
        with shop.relay(reput) as relay:
            shop.buy(topic, "buyer", 0)
            until(lambda: relay.metrics.sent_count == 1)
            server.kill()
            until(lambda: relay.metrics.failure_count > 1)
            server.start()
            shop.buy(topic, "buyer", 1)
            until(lambda: relay.metrics.sent_count == 2)
        shop.engine.dispose()
    finally:
        server.close()


def test_a_schema_and_a_name(reput: MemoryReput, postgres: PostgresServer) -> None:
    """Two outboxes in a database, in schemas and under names of their own, do not touch each other."""
    postgres.create("schemas")
    engine, metadata, topic = create_engine(postgres.url("schemas")), MetaData(), reput.topic()
    boxes = [Outbox(metadata, name="Events", schema="Shop"), Outbox(metadata, name="outbox2", notify=False)]
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "Shop"'))
        metadata.create_all(connection)
        for number, box in enumerate(boxes):
            box.add(connection, topic, b"%d" % number)
    for number, box in enumerate(boxes):
        database = SqlDatabase(engine, box)
        with Relay(database, FAST, connect=lambda: reput.connect(timeout_s=10)) as relay:
            until(lambda: relay.metrics.sent_count == 1)
        assert len(bodies(reput, topic)) == number + 1
    engine.dispose()


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"topic": ""}, "topic is empty"),
        ({"topic": "t" * 128}, "topic has 128 characters, the limit is 127"),
        ({"topic": 3}, "topic is of type int"),
        ({"body": "text"}, "body is of type str: expected bytes"),
        ({"key": ""}, "key is empty"),
        ({"key": "a\x02b"}, "0x02"),
        ({"key": "\ud800"}, "not UTF-8"),
        ({"key": "nul\x00"}, "0x00"),
        ({"tag": "x" * 256}, "tag has 256 characters"),
        ({"keys": ["a b"]}, "a key has no space"),
        ({"properties": {"a": 1}}, r"properties\['a'\] is of type int"),
        ({"properties": {"": "x"}}, "a name of properties is empty"),
        ({"delay_s": -1}, "delay_s is -1"),
        ({"delay_s": 1, "deliver_at": datetime.now(UTC)}, "one of deliver_at and delay_s"),
        ({"deliver_at": datetime(2026, 1, 1)}, "with a time zone"),  # noqa: DTZ001
    ],
)
def test_a_wrong_field_fails_the_transaction(fields: dict[str, object], part: str) -> None:
    """A field that the store would refuse is an error where the program can see it, and nothing is written."""
    engine = create_engine("sqlite://")
    shop = Shop(engine)
    with engine.begin() as connection, pytest.raises(OutboxError, match=part):
        OUTBOX.add(connection, **{"topic": "t", "body": b"x", **fields})
    assert shop.count(*State) == 0


def test_a_relay_with_wrong_settings() -> None:
    """A setting names itself, its value and its limit."""
    with pytest.raises(ValueError, match="batch_rows is 10001, the limit is 10000"):
        RelaySettings(batch_rows=10_001)
    with pytest.raises(ValueError, match="lease_s is 0: expected more than 0"):
        RelaySettings(lease_s=0)
    with pytest.raises(TypeError, match="poll_s is 'often': expected a number"):
        RelaySettings(poll_s="often")


def test_a_stop_is_quick(reput: MemoryReput, shop: Shop) -> None:
    """An idle relay ends at once, and gives its lease back."""
    relay = shop.relay(reput, RelaySettings(poll_s=500, lease_s=2000)).start()
    until(lambda: relay.metrics.is_holder)
    relay.stop(timeout_s=60)
    assert shop.database.transact(lambda table: table.lane()).holder == ""
    assert time.monotonic() > 0
