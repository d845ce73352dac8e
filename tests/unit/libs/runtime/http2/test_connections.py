# SPDX-License-Identifier: Apache-2.0
"""The connections that are asked to leave when there are too many, idle, old or silent connections."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from libs.runtime.http2 import connections
from libs.runtime.http2.connections import Connections
from libs.runtime.http2.limits import ConnectionLimits
from tests.support.patience import LIMIT_S, eventually
from tests.unit.libs.runtime.http2.test_connection import serving


class Opened:
    """A connection that records its calls."""

    def __init__(self) -> None:
        self.received_at_s = asyncio.get_running_loop().time()
        self.is_idle = True
        self.told: list[str] = []

    def ping(self) -> None:
        self.told.append("ping")

    def shut(self) -> None:
        self.told.append("shut")

    def cancel(self) -> list[asyncio.Task[None]]:
        return []

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")


@contextlib.contextmanager
def looked_after(found: Connections, **limits: int) -> Iterator[None]:
    """Look within the block, as often as these limits want it."""
    if limits:
        found.limits = ConnectionLimits(**limits)
    looking = asyncio.create_task(found.look_after())
    try:
        yield
    finally:
        looking.cancel()


@pytest.mark.parametrize(("file_count", "room"), [(1_024, 384), (100, 25), (1_000_000, 4_096)])
async def test_connections_leave_open_files_to_the_store(
    monkeypatch: pytest.MonkeyPatch, file_count: int, room: int
) -> None:
    """Connections, and as many that were asked to leave, never take all files that the process may open."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (file_count, file_count))
    monkeypatch.setattr(connections, "CLOSE_S", LIMIT_S)
    found = Connections(ConnectionLimits())
    opened = [Opened() for _ in range(room)]
    assert all(found.opened(one) for one in opened)
    assert not found.opened(Opened())
    sentences = connections.shortages(ConnectionLimits())
    assert [f"so {room} connections" in sentence for sentence in sentences] == [True] * (room < 4_096)


async def test_one_more_takes_the_place_of_the_longest_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit a new connection takes the place of the longest idle connection.

    If all have calls, or had a call a moment ago, the new connection is refused.
    """
    monkeypatch.setattr(connections, "CLOSE_S", LIMIT_S)
    found = Connections(ConnectionLimits(connection_count_max=3))
    first, second, third, fourth, fifth, sixth = [Opened() for _ in range(6)]
    assert all(found.opened(one) for one in (first, second, third))
    assert not found.opened(fifth), "nobody has been idle for long"
    monkeypatch.setattr(connections, "CLOSE_S", 0.05)
    found.busy(first)
    found.busy(second)
    found.idle(first)  # since later than the third
    await asyncio.sleep(0.06)
    third.is_idle = False
    assert not found.opened(fifth), "an answer has not left"
    third.is_idle = True
    assert found.opened(fourth)
    assert (third.told, len(found), found.idle_count) == (["shut"], 4, 2)
    third.is_idle = False
    found.busy(third)  # its last call came while it was asked to leave
    await asyncio.sleep(0.1)
    assert third.told == ["shut"]
    third.is_idle = True
    found.idle(third)
    with looked_after(found, connection_count_max=3, connection_idle_timeout_ms=0, connection_age_max_ms=100):
        await eventually(lambda: third.told[:2] == ["shut", "close"])
    found.closed(third)
    for one in (first, fourth):
        found.busy(one)
    assert not found.opened(fifth)
    found.closed(second)
    assert found.opened(sixth)
    counts = found.counts
    assert (counts.opened, counts.displaced, counts.refused) == (5, 1, 3)


async def test_those_who_do_not_leave_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection with a new call after it was asked to leave stays, so that further connections are refused."""
    monkeypatch.setattr(connections, "CLOSE_S", 0.0)
    found = Connections(ConnectionLimits(connection_count_max=2))
    came = [Opened() for _ in range(10)]
    for one in came:
        found.opened(one)
    assert (len(found), found.counts.displaced, found.counts.refused) == (4, 2, 6)


async def test_nobody_comes_while_it_stops() -> None:
    """A stop shuts all connections, and a connection whose handshake ends during the stop is refused."""
    found = Connections(ConnectionLimits())
    one, late = Opened(), Opened()
    found.opened(one)
    found.greeting(late)
    assert not found.is_empty
    found.shut()
    assert not found.opened(late)
    found.closed(one)
    assert (one.told, found.is_empty) == (["shut"], True)


async def test_whoever_has_no_call_for_long_is_asked_to_leave() -> None:
    """An idle connection is asked to leave, and closed if it stays. A connection with a call is left alone."""
    found = Connections(ConnectionLimits(connection_idle_timeout_ms=40))
    idle, working = Opened(), Opened()
    for one in (idle, working):
        found.opened(one)
    found.busy(working)
    with looked_after(found):
        await eventually(lambda: idle.told[:2] == ["shut", "close"])
    assert working.told == []


async def test_old_connections_end_after_their_calls() -> None:
    """A connection over the maximum age is shut, and closed when it has no call."""
    found = Connections(ConnectionLimits(connection_age_max_ms=40))
    one = Opened()
    found.opened(one)
    one.is_idle = False
    found.busy(one)
    with looked_after(found):
        await eventually(lambda: one.told == ["shut"])
        await asyncio.sleep(0.05)
        assert one.told == ["shut"]
        one.is_idle = True
        found.idle(one)
        await eventually(lambda: one.told[:2] == ["shut", "close"])


async def test_a_connection_has_time_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that come soon after the request to leave close nothing: a call may be on its way."""
    monkeypatch.setattr(connections, "CLOSE_S", LIMIT_S)
    found = Connections(ConnectionLimits(connection_age_max_ms=40))
    one = Opened()
    found.opened(one)
    with looked_after(found):
        await eventually(lambda: one.told == ["shut"])
        await asyncio.sleep(0.1)
    assert one.told == ["shut"]


async def test_the_silent_are_asked_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection is pinged and then aborted; a connection that answers stays."""
    monkeypatch.setattr(connections, "SILENCE_S", 0.05)
    monkeypatch.setattr(connections, "ANSWER_S", 0.5)
    found = Connections(ConnectionLimits(connection_idle_timeout_ms=0))
    gone, alive = Opened(), Opened()
    alive.received_at_s = float("inf")
    for one in (gone, alive):
        found.opened(one)
    with looked_after(found):
        await eventually(lambda: gone.told[-1:] == ["abort"])
    assert gone.told[0] == "ping"
    assert (alive.told, found.counts.silent > 0) == ([], True)


async def test_a_call_goes_on_while_others_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """With real connections: the idle connection is shut, a call is answered, and a third connection is refused."""
    monkeypatch.setattr(connections, "CLOSE_S", 0.05)
    with serving(connection_count_max=1) as (_, server, connect):
        idle = connect()
        idle.pass_on()
        await asyncio.sleep(0.06)
        working = connect()
        stream_id = working.call("Wait", b"", (b"grpc-timeout", b"50m"))
        refused = connect()
        assert refused.transport.is_closed
        await eventually(lambda: idle.transport.is_closed)
        assert (await working.end_of(stream_id))[b"grpc-status"] == b"4"
        assert (server.connections.counts.displaced, server.connections.counts.refused) == (1, 1)
