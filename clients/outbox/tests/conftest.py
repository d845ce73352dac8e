# SPDX-License-Identifier: Apache-2.0
"""Databases for the tests of the outbox: SQLite, and PostgreSQL where the server is installed."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from clients.outbox.tests import postgres_server
from clients.outbox.tests.postgres_server import PostgresServer
from clients.outbox.tests.shop import Shop


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the session."""
    yield from postgres_server.running()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"shop_{uuid.uuid4().hex[:8]}"
    server.create(name)
    return server.url(name)


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    """A program with a table of orders and an outbox."""
    engine = create_engine(url)
    try:
        yield Shop(engine)
    finally:
        engine.dispose()
