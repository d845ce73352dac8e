# SPDX-License-Identifier: Apache-2.0
"""The classes of Kombu's own transport tests, with connections of this transport: for Kombu's `t/integration`."""

import uuid

import kombu
import kombu_reput  # noqa: F401 - makes reput:// known
import pytest

from .common import (
    BaseEventLoop,
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

DEAD = "reput://localhost:12345"


@pytest.fixture
def connection() -> kombu.Connection:
    """A connection to a virtual host of the test."""
    return kombu.Connection(f"reput:///{uuid.uuid4().hex[:8]}")


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    """A connection to nothing."""
    return kombu.Connection(DEAD, connect_timeout=1)


@pytest.fixture
def failover_connection() -> kombu.Connection:
    """A connection to nothing, or else to the store."""
    return kombu.Connection(f"{DEAD};reput:///", connect_timeout=1)


class test_Basic(BasicFunctionality):  # noqa: D101, N801 - Kombu collects such names
    pass


class test_Exchanges(BaseExchangeTypes):  # noqa: D101, N801
    pass


class test_TimeToLive(BaseTimeToLive):  # noqa: D101, N801
    pass


class test_Priority(BasePriority):  # noqa: D101, N801
    pass


class test_Message(BaseMessage):  # noqa: D101, N801
    pass


class test_EventLoop(BaseEventLoop):  # noqa: D101, N801
    pass


class test_Failover(BaseFailover):  # noqa: D101, N801
    pass
