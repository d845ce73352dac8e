# SPDX-License-Identifier: Apache-2.0
"""A quota by itself: rates, streams and connections, changed limits, and a clock that steps back."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from libs.runtime.trust.rights.quota import RETRY_MS_MIN, RETRY_OPEN_MS, Quota, QuotaExceeded, QuotaLimits


class Clock:
    """The time of a test."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Connection:
    """A connection that may be lost."""

    def __init__(self) -> None:
        self.when_lost: dict[object, Callable[[], None]] = {}

    def lose(self) -> None:
        """Lose the connection, as the front does."""
        for told in self.when_lost.values():
            told()
        self.when_lost.clear()


class Stream:
    """The context of a call that may end."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Keep the callback until the end."""
        self.callbacks.append(callback)

    def end(self) -> None:
        """End the call."""
        for callback in self.callbacks:
            callback(self)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock, **limits: int) -> Quota:
    return Quota("shop", QuotaLimits(**limits), clock)


def taken(quota: Quota, size_bytes: int = 0) -> bool:
    if not quota.has_room():
        return False
    quota.take(size_bytes)
    return True


def test_calls_and_bytes_have_their_own_rates(clock: Clock) -> None:
    """A refusal names the quota that waits longest, its value and limit, and tells the time."""
    quota = made(clock, calls_per_s_max=10, bytes_per_s_max=1_000)
    assert [taken(quota, 10) for _ in range(11)] == [True] * 10 + [False]
    with pytest.raises(
        QuotaExceeded, match=r"shop is over its quota: calls_per_s_max is 10, .* would be 11;"
    ) as caught:
        quota.check_room(10)
    error = caught.value
    assert (error.subject, error.quota, error.value, error.limit) == ("shop", "calls_per_s_max", 11, 10)
    assert error.retry_after_ms == RETRY_MS_MIN
    clock.now_s += 1
    assert taken(quota, 9_000)
    with pytest.raises(QuotaExceeded) as caught:
        quota.check_room(5)
    error = caught.value
    assert (error.quota, error.value, error.limit) == ("bytes_per_s_max", 9_005, 1_000)
    assert error.retry_after_ms == 8_000
    clock.now_s += 8.001
    quota.check_room(5)


def test_streams_and_connections_are_counted_until_they_end(clock: Clock) -> None:
    """A stream or a connection beyond the limit is refused, and each end makes room for another."""
    quota = made(clock, stream_count_max=2, connection_count_max=2)
    streams, connections = [Stream() for _ in range(3)], [Connection() for _ in range(3)]
    for index in range(2):
        quota.open_stream(streams[index])
        quota.connect(connections[index])
        quota.connect(connections[index])
    assert quota.may_connect(connections[0])
    assert not quota.may_connect(connections[2])
    for name, function, argument in (
        ("stream_count_max", quota.open_stream, streams[2]),
        ("connection_count_max", quota.connect, connections[2]),
    ):
        with pytest.raises(QuotaExceeded) as caught:
            function(argument)  # type: ignore[operator]
        error = caught.value
        assert (error.quota, error.value, error.limit, error.retry_after_ms) == (name, 3, 2, RETRY_OPEN_MS)
    assert not streams[2].callbacks
    assert not connections[2].when_lost
    streams[0].end()
    connections[0].lose()
    quota.open_stream(streams[2])
    quota.connect(connections[2])
    assert (quota.stream_count, quota.connection_count) == (2, 2)


def test_two_subjects_on_a_connection_are_counted_apart(clock: Clock) -> None:
    """A connection that several subjects share counts for each of them, and its loss for each of them, too."""
    first, second = made(clock, connection_count_max=1), made(clock, connection_count_max=1)
    shared, other = Connection(), Connection()
    first.connect(shared)
    second.connect(shared)
    assert not second.may_connect(other)
    shared.lose()
    assert (first.connection_count, second.connection_count) == (0, 0)
    second.connect(other)


def test_changed_limits_are_in_force_at_once_and_end_nothing(clock: Clock) -> None:
    """A lower limit refuses the next; without a limit all is permitted; open streams are counted through all of it."""
    quota = made(clock, stream_count_max=5, calls_per_s_max=1_000)
    streams = [Stream() for _ in range(3)]
    for stream in streams:
        quota.open_stream(stream)
    quota.change(QuotaLimits(stream_count_max=1, calls_per_s_max=1))
    assert [taken(quota) for _ in range(2)] == [True, False]
    with pytest.raises(QuotaExceeded):
        quota.open_stream(Stream())
    quota.change(QuotaLimits())
    assert all(taken(quota, 1 << 40) for _ in range(100))
    assert quota.wait_s() == 0
    quota.open_stream(streams[0])
    quota.change(QuotaLimits(stream_count_max=5))
    assert quota.stream_count == 4
    for stream in streams:
        stream.end()
    assert quota.stream_count == 0


def test_a_quota_without_a_limit_refuses_nothing_and_counts_nothing(clock: Clock) -> None:
    """Only the limits that are set cost something."""
    quota = made(clock, connection_count_max=1)
    assert all(taken(quota, 1 << 40) for _ in range(100))
    quota.give_back(1)
    quota.open_stream(Stream())


def test_a_clock_that_steps_back(clock: Clock) -> None:
    """A step back neither locks a subject out nor opens its quota."""
    quota = made(clock, calls_per_s_max=2)
    assert [taken(quota) for _ in range(3)] == [True, True, False]
    clock.now_s -= 1_000_000
    assert not taken(quota)
    clock.now_s += 0.4
    assert taken(quota)
    assert not taken(quota)


class Uses(RuleBasedStateMachine):
    """Streams and connections come and go, limits change, and the counts are those of open streams and connections."""

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota("shop", QuotaLimits(stream_count_max=2, connection_count_max=2), lambda: 0.0)
        self.streams: list[Stream] = []
        self.connections: list[Connection] = []

    @rule(streams=st.none() | st.integers(1, 4), connections=st.none() | st.integers(1, 4))
    def change(self, streams: int | None, connections: int | None) -> None:
        """Read another file."""
        self.quota.change(QuotaLimits(stream_count_max=streams, connection_count_max=connections))

    @rule()
    def open_stream(self) -> None:
        """Open a stream if there is room."""
        limit, stream = self.quota.limits.stream_count_max, Stream()
        has_room = limit is None or len(self.streams) < limit
        with contextlib.nullcontext() if has_room else pytest.raises(QuotaExceeded):
            self.quota.open_stream(stream)
        self.streams += [stream] * has_room

    @rule()
    def connect(self) -> None:
        """Call on a new connection."""
        limit, connection = self.quota.limits.connection_count_max, Connection()
        has_room = limit is None or len(self.connections) < limit
        with contextlib.nullcontext() if has_room else pytest.raises(QuotaExceeded):
            self.quota.connect(connection)
        self.connections += [connection] * has_room

    @precondition(lambda self: self.connections)
    @rule()
    def call_again(self) -> None:
        """Call on a known connection, also above a smaller limit."""
        self.quota.connect(self.connections[0])

    @precondition(lambda self: self.connections)
    @rule()
    def lose(self) -> None:
        """Lose a connection."""
        self.connections.pop(0).lose()

    @precondition(lambda self: self.streams)
    @rule()
    def end(self) -> None:
        """End a stream."""
        self.streams.pop(0).end()

    @invariant()
    def counts(self) -> None:
        """The counts are those of the open streams and connections."""
        assert self.quota.stream_count == len(self.streams)
        assert self.quota.connection_count == len(self.connections)


TestUses = Uses.TestCase
TestUses.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
