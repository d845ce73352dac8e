# SPDX-License-Identifier: Apache-2.0
"""The relay's database, over a connection of Django's, and the app's settings."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction

from reput_outbox.core.errors import DatabaseTrouble, OutboxError
from reput_outbox.core.settings import RelaySettings
from reput_outbox.core.table import Answer, Table
from reput_outbox.postgres import PostgresListener

T = TypeVar("T")
CHANNEL = "reput_outbox"
OPTIONS = ("database", "notify", "relay")
_NAMED = re.compile(r":(\w+)")


def option(name: str, default: Any) -> Any:
    """Return an option of the setting REPUT_OUTBOX. Raises OutboxError for an unknown option."""
    options = getattr(settings, "REPUT_OUTBOX", {})
    for given in options:
        if given not in OPTIONS:
            raise OutboxError(f"REPUT_OUTBOX has {given!r}, but there are only {', '.join(OPTIONS)}")
    return options.get(name, default)


def alias() -> str:
    """Return the alias of the database that has the outbox."""
    return str(option("database", DEFAULT_DB_ALIAS))


def relay_settings() -> RelaySettings:
    """Return the relay's settings. Raises ValueError and TypeError."""
    return RelaySettings(**option("relay", {}))


def table_of(using: str) -> Table:
    """Return the operations on the tables, over the present connection to a database."""
    connection = connections[using]

    def execute(sql: str, values: Mapping[str, Any]) -> Answer:
        with connection.cursor() as cursor:
            cursor.execute(_NAMED.sub(r"%(\1)s", sql), dict(values))
            return Answer(cursor.fetchall() if cursor.description else (), cursor.rowcount)

    quote = connection.ops.quote_name
    return Table(execute, quote("reput_outbox"), quote("reput_outbox_relay"))


def notify(using: str) -> None:
    """Tell a relay that listens of new rows, when the transaction commits."""
    connection = connections[using]
    if connection.vendor == "postgresql" and option("notify", True):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [CHANNEL])


class DjangoDatabase:
    """The relay's database."""

    def __init__(self, using: str) -> None:
        self._using = using

    def transact(self, work: Callable[[Table], T]) -> T:
        """Run `work` in a transaction. Raises DatabaseTrouble."""
        try:
            with transaction.atomic(using=self._using, durable=True):
                return work(table_of(self._using))
        except Error as error:
            connections[self._using].close()  # the next transaction connects again
            raise DatabaseTrouble(str(error).partition("\n")[0]) from error

    def listen(self) -> PostgresListener | None:
        """Return a listener, None without PostgreSQL and psycopg 3. Raises DatabaseTrouble."""
        connection = connections[self._using]
        if connection.vendor != "postgresql" or not option("notify", True):
            return None
        from django.db.backends.postgresql.psycopg_any import is_psycopg3

        if not is_psycopg3:
            return None
        try:
            own = connection.get_new_connection(connection.get_connection_params())
            own.autocommit = True
        except Error as error:
            raise DatabaseTrouble(str(error)) from error
        return PostgresListener(own, CHANNEL)

    def close(self) -> None:
        """Close this thread's connection."""
        connections[self._using].close()
