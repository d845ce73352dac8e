# SPDX-License-Identifier: Apache-2.0
"""PostgresListener: PostgreSQL tells the relay that rows were added, by LISTEN and NOTIFY."""

from typing import TYPE_CHECKING, Any, Self

from reput_outbox.core.errors import DatabaseTrouble

if TYPE_CHECKING:
    from psycopg import Connection


class PostgresListener:
    """A connection of psycopg 3 that listens. The relay's Listener."""

    def __init__(self, connection: "Connection[Any]", channel: str) -> None:
        from psycopg import Error, sql

        self._connection, self._error = connection, Error
        try:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except Error as error:
            raise DatabaseTrouble(str(error)) from error

    @classmethod
    def connect(cls, channel: str, *arguments: Any, **options: Any) -> Self:
        """Return a listener with a connection of its own. Raises DatabaseTrouble."""
        import psycopg

        try:
            connection = psycopg.connect(*arguments, **{**options, "autocommit": True})
        except psycopg.Error as error:
            raise DatabaseTrouble(str(error)) from error
        return cls(connection, channel)

    def fileno(self) -> int:
        """Return the connection's descriptor."""
        try:
            return self._connection.fileno()
        except self._error as error:
            raise DatabaseTrouble(str(error)) from error

    def take(self) -> None:
        """Take the notifications that have come. Raises DatabaseTrouble."""
        try:
            for _ in self._connection.notifies(timeout=0):
                pass
        except self._error as error:
            raise DatabaseTrouble(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
