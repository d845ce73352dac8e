# SPDX-License-Identifier: Apache-2.0
"""Connections to the store of a test."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import kombu_reput  # noqa: F401 - makes reput:// known
import pytest
from pytest_reput import MemoryReput


@pytest.fixture
def connect(reput: MemoryReput) -> Iterator[Callable[..., kombu.Connection]]:
    """Return a function that opens a connection to a virtual host of this test alone. It is closed after the test."""
    host, opened = uuid.uuid4().hex[:8], []

    def make(**options: Any) -> kombu.Connection:
        connection = kombu.Connection(f"reput:///{host}", transport_options=options)
        opened.append(connection)
        return connection

    yield make
    for connection in opened:
        connection.close()
