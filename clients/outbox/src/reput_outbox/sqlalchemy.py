# SPDX-License-Identifier: Apache-2.0
"""The outbox for SQLAlchemy 2: its tables in the application's MetaData, `add`, and the relay's database.

Sync and asyncio: Session, AsyncSession, Connection, AsyncConnection, Engine and AsyncEngine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Text,
    text,
)
from sqlalchemy import Table as SqlTable
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from reput_outbox.core.errors import DatabaseTrouble, OutboxError
from reput_outbox.core.rows import KEY_SIZE_MAX, TAG_SIZE_MAX, TOPIC_SIZE_MAX, Fields, State, make_entry
from reput_outbox.core.table import Answer, Table
from reput_outbox.postgres import PostgresListener

if TYPE_CHECKING:  # it needs greenlet, which programs without asyncio may lack
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

T = TypeVar("T")
_ID = BigInteger().with_variant(Integer, "sqlite")


class Outbox:
    """The tables of an outbox in a MetaData, and `add`.

    `name` is the name of the table of rows; the relay's table has `_relay` behind it. With `notify` False PostgreSQL
    tells the relay nothing, and the relay polls.
    """

    def __init__(
        self, metadata: MetaData, *, name: str = "reput_outbox", schema: str | None = None, notify: bool = True
    ) -> None:
        self.notifies, self.channel = notify, name
        self.rows = SqlTable(
            name,
            metadata,
            Column("id", _ID, primary_key=True, autoincrement=True),
            Column("uid", String(32), nullable=False),
            Column("topic", String(TOPIC_SIZE_MAX), nullable=False),
            Column("order_key", String(KEY_SIZE_MAX)),
            Column("tag", String(TAG_SIZE_MAX)),
            Column("lookup_keys", Text, nullable=False),
            Column("properties", Text, nullable=False),
            Column("body", LargeBinary, nullable=False),
            Column("size", Integer, nullable=False),
            Column("created_ms", BigInteger, nullable=False),
            Column("deliver_at_ms", BigInteger),
            Column("state", SmallInteger, nullable=False),
            Column("attempts", Integer, nullable=False),
            Column("reason", Text, nullable=False),
            Column("batch", BigInteger),
            Column("sent_ms", BigInteger),
            schema=schema,
            sqlite_autoincrement=True,
        )
        held = self.rows.c.state >= State.REFUSED.value
        Index(f"{name}_state", self.rows.c.state, self.rows.c.id)
        Index(f"{name}_held", self.rows.c.order_key, postgresql_where=held, sqlite_where=held)
        self.lanes = SqlTable(
            f"{name}_relay",
            metadata,
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("writer_id", String(64), nullable=False),
            Column("next_number", BigInteger, nullable=False),
            Column("base", BigInteger, nullable=False),
            Column("check_id", BigInteger, nullable=False),
            Column("holder", String(255), nullable=False),
            Column("beat", BigInteger, nullable=False),
            Column("trouble", Text, nullable=False),
            schema=schema,
        )

    def add(self, session: Session | Connection, topic: str, body: bytes, **fields: Unpack[Fields]) -> str:
        """Write a message in the session's transaction, and return its unique id. It is sent if that commits.

        Messages of a topic with the same `key` are stored in order. A session is flushed first, so that the
        transaction has the locks of its changes by then. Raises OutboxError for a wrong field.
        """
        entry = make_entry(topic, body, **fields)
        if hasattr(session, "run_sync"):
            raise OutboxError("add takes a Session or a Connection; for asyncio use add_async")
        if isinstance(session, Session):
            session.flush()
            connection = session.connection(bind_arguments={"clause": self.rows})
        else:
            connection = session
        self.table(connection).add(entry)
        if self.notifies and connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_notify(:channel, '')"), {"channel": self.channel})
        return entry.uid

    async def add_async(
        self, session: "AsyncSession | AsyncConnection", topic: str, body: bytes, **fields: Unpack[Fields]
    ) -> str:
        """Write a message like `add`, in the transaction of an asyncio session."""
        return await session.run_sync(lambda inner: self.add(inner, topic, body, **fields))

    def table(self, connection: Connection) -> Table:
        """Return the operations on the tables, in the transaction of a connection."""
        quoted = connection.dialect.identifier_preparer.format_table

        def execute(sql: str, values: Mapping[str, Any]) -> Answer:
            result = connection.execute(text(sql), dict(values))
            return Answer(cast("Sequence[Sequence[Any]]", result.all()) if result.returns_rows else (), result.rowcount)

        return Table(execute, quoted(self.rows), quoted(self.lanes))


class SqlDatabase:
    """The relay's database, over an engine."""

    def __init__(self, engine: Engine, outbox: Outbox) -> None:
        self._engine, self._outbox = _committed_reads(engine), outbox

    def transact(self, work: Callable[[Table], T]) -> T:
        """Run `work` in a transaction. Raises DatabaseTrouble."""
        try:
            with self._engine.begin() as connection:
                return work(self._outbox.table(connection))
        except SQLAlchemyError as error:
            raise DatabaseTrouble(_first_line(error)) from error

    def listen(self) -> PostgresListener | None:
        """Return a listener, None without PostgreSQL and psycopg 3. Raises DatabaseTrouble."""
        return _listen(self._engine, self._outbox)

    def close(self) -> None:
        """Leave the engine's pool to its owner."""


class AsyncSqlDatabase:
    """The relay's database, over an asyncio engine."""

    def __init__(self, engine: "AsyncEngine", outbox: Outbox) -> None:
        self._engine, self._outbox = engine, outbox

    async def transact(self, work: Callable[[Table], T]) -> T:
        """Run `work` in a transaction. Raises DatabaseTrouble."""
        try:
            async with self._engine.connect() as connection:
                if connection.dialect.name == "postgresql":
                    await connection.execution_options(isolation_level="READ COMMITTED")
                async with connection.begin():
                    return await connection.run_sync(lambda inner: work(self._outbox.table(inner)))
        except SQLAlchemyError as error:
            raise DatabaseTrouble(_first_line(error)) from error

    def listen(self) -> PostgresListener | None:
        """Return a listener, None without PostgreSQL and psycopg 3. Raises DatabaseTrouble."""
        return _listen(self._engine.sync_engine, self._outbox)


def _committed_reads(engine: Engine) -> Engine:
    """Return the engine with the isolation that the relay's statements are made for."""
    if engine.dialect.name != "postgresql":
        return engine
    return engine.execution_options(isolation_level="READ COMMITTED")


def _listen(engine: Engine, outbox: Outbox) -> PostgresListener | None:
    if engine.dialect.name != "postgresql" or engine.dialect.driver != "psycopg" or not outbox.notifies:
        return None
    arguments, options = engine.dialect.create_connect_args(engine.url)
    return PostgresListener.connect(outbox.channel, *arguments, **options)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
