# SPDX-License-Identifier: Apache-2.0
"""A push consumer keeps its messages while it is alive, and no longer."""

import tracemalloc
from collections.abc import Mapping, Sequence

import pytest

from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import PeerError
from services.gateway.engine.renewals import (
    CLIENT_COUNT_MAX,
    HELD_S_MAX,
    INVISIBLE_S,
    RENEW_BEFORE_S,
    SILENCE_S_MAX,
    Renewals,
)

DUE_MS = round((INVISIBLE_S - RENEW_BEFORE_S) * 1000)


class Delivery:
    """Renews messages that are not settled, and can be away."""

    def __init__(self) -> None:
        self.settled: set[str] = set()
        self.renewed: list[str] = []
        self.is_away = False

    async def renew(self, handles: Sequence[str], invisible_s: float) -> Mapping[str, bool]:
        """See Renewer."""
        assert invisible_s == INVISIBLE_S
        if self.is_away:
            raise PeerError("delivery", "", "away")
        self.renewed += [handle for handle in handles if handle not in self.settled]
        return {handle: handle not in self.settled for handle in handles}


def made(count_max: int = 100) -> tuple[Renewals, Delivery, ManualClock]:
    delivery, clock = Delivery(), ManualClock()
    return Renewals(delivery, clock, count_max=count_max), delivery, clock


async def test_a_message_is_renewed_in_time_while_its_client_has_a_stream() -> None:
    """A message is renewed repeatedly, and not before it is due."""
    renewals, delivery, clock = made()
    renewals.connected("c")
    renewals.add("c", "h")
    clock.advance(DUE_MS - 1)
    await renewals.run_maintenance()
    assert delivery.renewed == []
    for _ in range(5):
        clock.advance(DUE_MS)
        await renewals.run_maintenance()
    assert delivery.renewed == ["h"] * 5


async def test_heartbeats_are_enough() -> None:
    """Heartbeats keep a client alive whose stream is at another gateway, or broken."""
    renewals, delivery, clock = made()
    renewals.add("c", "h")
    for _ in range(4):
        clock.advance(DUE_MS)
        renewals.hear("c")
        await renewals.run_maintenance()
    assert delivery.renewed == ["h"] * 4


async def test_a_client_that_is_gone_keeps_nothing() -> None:
    """Messages of a client that was silent for too long, or has left, are not renewed."""
    renewals, delivery, clock = made()
    renewals.add("silent", "h1")
    renewals.connected("leaves")
    renewals.add("leaves", "h2")
    renewals.leave("leaves")
    renewals.disconnected("leaves")
    clock.advance(DUE_MS)
    await renewals.run_maintenance()
    assert delivery.renewed == ["h1"]
    clock.advance(round(SILENCE_S_MAX * 1000) + 1)
    await renewals.run_maintenance()
    assert renewals.count == 0


async def test_a_stream_that_ends_leaves_the_others() -> None:
    """The end of a stream does not end the client's other streams, of which the next may open first."""
    renewals, delivery, clock = made()
    renewals.connected("c")
    renewals.connected("c")
    renewals.disconnected("c")
    renewals.add("c", "h")
    clock.advance(round(SILENCE_S_MAX * 1000) + DUE_MS)
    await renewals.run_maintenance()
    assert delivery.renewed == ["h"]


async def test_what_is_settled_is_not_renewed() -> None:
    """A settled message is not renewed, if it was settled at this gateway or Delivery reports it."""
    renewals, delivery, clock = made()
    for handle in ("h1", "h2"):
        renewals.add("c", handle)
    renewals.drop("h1")
    delivery.settled.add("h2")
    clock.advance(DUE_MS)
    await renewals.run_maintenance()
    assert (delivery.renewed, renewals.count) == ([], 0)


async def test_delivery_may_be_away_for_a_while() -> None:
    """If Delivery is away, the renewal is retried soon."""
    renewals, delivery, clock = made()
    renewals.add("c", "h")
    delivery.is_away = True
    clock.advance(DUE_MS)
    await renewals.run_maintenance()
    delivery.is_away = False
    clock.advance(1_000)
    await renewals.run_maintenance()
    assert delivery.renewed == ["h"]


async def test_nothing_is_held_for_ever() -> None:
    """The messages of a client that never settles are not renewed for ever."""
    renewals, _, clock = made()
    renewals.connected("c")
    renewals.add("c", "h")
    for _ in range(round(HELD_S_MAX * 1000 / DUE_MS) + 1):
        clock.advance(DUE_MS)
        await renewals.run_maintenance()
    assert renewals.count == 0


async def test_there_is_a_limit() -> None:
    """Messages above the limit are not renewed, so that their consumer has them for a minute."""
    renewals, _, _ = made(count_max=1)
    renewals.add("c", "h1")
    renewals.add("c", "h2")
    assert renewals.count == 1


async def test_dropped_messages_take_no_room() -> None:
    """However many messages are delivered and settled in a minute, memory is that of the messages that are held."""
    renewals, delivery, clock = made(count_max=10_000)
    renewals.connected("c")
    renewals.add("c", "kept")
    tracemalloc.start()
    try:
        for number in range(100_000):
            renewals.add("c", f"h{number}")
            renewals.drop(f"h{number}")
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size_bytes < 1 << 20
    clock.advance(DUE_MS)
    await renewals.run_maintenance()
    assert delivery.renewed == ["kept"]


async def test_clients_that_nobody_knows_take_no_more_room() -> None:
    """With too many unknown clients a client with a stream keeps its messages.

    Later there is room for new clients again.
    """
    renewals, delivery, clock = made()
    for number in range(CLIENT_COUNT_MAX + 10):
        renewals.hear(f"junk-{number}")
    renewals.connected("c")
    renewals.add("c", "h1")
    renewals.add("late", "h2")
    assert len(renewals.clients) == CLIENT_COUNT_MAX
    clock.advance(DUE_MS)
    await renewals.run_maintenance()
    assert delivery.renewed == ["h1"]
    clock.advance(round(SILENCE_S_MAX * 1000) + 1)
    await renewals.run_maintenance()
    renewals.hear("late")
    assert "late" in renewals.clients


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000], ids=["ahead", "back"])
async def test_a_clock_that_is_set_changes_nothing(step_ms: int) -> None:
    """A message is renewed when it is due by monotonic time, and a live client stays known."""
    renewals, delivery, clock = made()
    renewals.connected("c")
    renewals.add("c", "h")
    clock.set_now_ms(clock.now_ms() + step_ms)
    clock.advance(DUE_MS - 1)
    await renewals.run_maintenance()
    assert delivery.renewed == []
    clock.advance(1)
    await renewals.run_maintenance()
    assert delivery.renewed == ["h"]
