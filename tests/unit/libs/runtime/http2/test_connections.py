# SPDX-License-Identifier: Apache-2.0
"""Who makes room when there are too many connections, and who is asked to leave."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from libs.runtime.http2 import connections
from libs.runtime.http2.connections import Connections
from libs.runtime.http2.limits import ConnectionLimits
from tests.support.patience import eventually
from tests.unit.libs.runtime.http2.test_connection import serving


class Opened:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.received_at_s = asyncio.get_running_loop().time()
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
def looked_after(found: Connections) -> Iterator[None]:
    """Look within the block."""
    looking = asyncio.create_task(found.look_after())
    try:
        yield
    finally:
        looking.cancel()


async def test_one_more_takes_the_place_of_the_longest_idle() -> None:
    """Those with calls stay; when all have some, the new one has to go."""
    found = Connections(ConnectionLimits(connection_count_max=3))
    first, second, third, fourth, fifth, sixth = [Opened() for _ in range(6)]
    assert all(found.opened(one) for one in (first, second, third))
    found.busy(first)
    found.busy(second)
    found.idle(first)  # since later than the third
    assert found.opened(fourth)
    assert (third.told, len(found), found.idle_count) == (["close"], 3, 2)
    found.busy(third)  # its last call came while it was being closed
    found.idle(third)
    found.closed(third)
    assert found.idle_count == 2
    found.busy(first)
    found.busy(fourth)
    assert not found.opened(fifth)
    found.closed(second)
    assert found.opened(sixth)
    counts = found.counts
    assert (counts.opened, counts.displaced, counts.refused) == (5, 1, 1)
    assert [one.told for one in (first, second, fourth, fifth, sixth)] == [[]] * 5


async def test_whoever_has_no_call_for_long_is_asked_to_leave() -> None:
    """And is closed if it stays. One with a call is left alone."""
    found = Connections(ConnectionLimits(connection_idle_timeout_ms=40))
    idle, working = Opened(), Opened()
    for one in (idle, working):
        found.opened(one)
    found.busy(working)
    with looked_after(found):
        await eventually(lambda: idle.told[:2] == ["shut", "close"])
    assert working.told == []


async def test_old_connections_end_after_their_calls() -> None:
    """They are asked to leave, and closed once they have no call."""
    found = Connections(ConnectionLimits(connection_age_max_ms=40))
    one = Opened()
    found.opened(one)
    found.busy(one)
    with looked_after(found):
        await eventually(lambda: one.told == ["shut"])
        await asyncio.sleep(0.05)
        assert one.told == ["shut"]
        found.idle(one)
        await eventually(lambda: one.told[:2] == ["shut", "close"])


async def test_the_silent_are_asked_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers stays."""
    monkeypatch.setattr(connections, "SILENCE_S", 0.05)
    monkeypatch.setattr(connections, "ANSWER_S", 0.02)
    found = Connections(ConnectionLimits(connection_idle_timeout_ms=0))
    gone, alive = Opened(), Opened()
    alive.received_at_s = float("inf")
    for one in (gone, alive):
        found.opened(one)
    with looked_after(found):
        await eventually(lambda: gone.told[-1:] == ["abort"])
    assert gone.told[0] == "ping"
    assert (alive.told, found.counts.silent > 0) == ([], True)


async def test_a_call_goes_on_while_others_make_room() -> None:
    """With real ones: the idle one is told good-bye, the one with a call answers, and a third has no room."""
    with serving(connection_count_max=1) as (_, server, connect):
        idle, working = connect(), connect()
        idle.pass_on()
        stream_id = working.call("Wait", b"", (b"grpc-timeout", b"50m"))
        refused = connect()
        assert (idle.transport.is_closed, refused.transport.is_closed) == (True, True)
        assert (await working.end_of(stream_id))[b"grpc-status"] == b"4"
        assert (server.connections.counts.displaced, server.connections.counts.refused) == (1, 1)
