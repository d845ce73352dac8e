# SPDX-License-Identifier: Apache-2.0
"""QueueState: its rules, and copies of random histories."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from libs.formats.records.delivery_record import Flight, Moved, Place, Postponed, Settled, Took
from services.delivery.engine.state.queue import STALE_COUNT_MAX, QueueState

PLACE = Place("g", "t", 0)


def flight(offset: int, *, attempt: int = 1, stamp: int = 1, until_ms: int = 100, key: int = 0) -> Flight:
    return Flight(offset, attempt, stamp, until_ms, key)


def queue(*flights: Flight, next_offset: int, held: tuple[tuple[int, int], ...] = ()) -> QueueState:
    state = QueueState(PLACE)
    state.apply(Took(PLACE, next_offset, flights, held))
    return state


def test_a_message_in_flight_is_ready_when_its_time_is_over() -> None:
    """Messages become ready by their times, the earliest first if the caller asks for fewer."""
    state = queue(flight(0, until_ms=100), flight(1, until_ms=50), next_offset=2)
    assert state.ready(49, 10) == []
    assert state.ready(50, 10) == [1]
    assert state.ready(100, 10) == [0, 1]
    assert state.ready(100, 1) == [1]
    assert state.due_ms() == 50


def test_what_was_committed_is_the_first_that_is_not_settled() -> None:
    """The committed offset never passes a message that is open."""
    state = queue(flight(0), flight(1), flight(2), next_offset=3)
    state.apply(Settled(PLACE, (1,)))
    assert state.committed == 0
    state.apply(Settled(PLACE, (0,)))
    assert state.committed == 2
    state.apply(Settled(PLACE, (2,)))
    assert (state.committed, state.open_count) == (3, 0)


def test_one_that_was_delivered_again_has_its_new_time_only() -> None:
    """The time of a former delivery makes nothing ready."""
    state = queue(flight(0, until_ms=10), next_offset=1)
    state.apply(Took(PLACE, 1, (flight(0, attempt=2, stamp=11, until_ms=70),)))
    assert state.ready(69, 1) == []
    assert state.attempts(0) == 2
    state.apply(Postponed(PLACE, (flight(0, attempt=2, stamp=12, until_ms=30),)))
    assert state.ready(30, 1) == [0]


def test_messages_of_a_key_wait_for_each_other() -> None:
    """A single message of a key is in flight, and the next is ready once this is settled."""
    state = queue(flight(0, key=7), next_offset=3, held=((1, 7), (2, 7)))
    assert state.is_blocked(7)
    assert not state.is_blocked(8)
    assert state.ready(99, 10) == []
    state.apply(Settled(PLACE, (0,)))
    assert state.due_ms() == 0
    assert state.ready(0, 10) == [1]
    state.apply(Took(PLACE, 3, (flight(1, key=7, until_ms=200),)))
    assert state.ready(150, 10) == []
    assert state.is_blocked(7)
    state.apply(Settled(PLACE, (1,)))
    assert state.ready(0, 10) == [2]
    state.apply(Took(PLACE, 3, (flight(2, key=7),)))
    state.apply(Settled(PLACE, (2,)))
    assert not state.is_blocked(7)
    assert state.committed == 3


def test_a_move_forgets_what_is_open() -> None:
    """After a move nothing is in flight, held or blocked."""
    state = queue(flight(0, key=7), next_offset=2, held=((1, 7),))
    state.apply(Moved(PLACE, 5))
    assert (state.next, state.committed, state.open_count, state.due_ms()) == (5, 5, 0, None)
    assert not state.is_blocked(7)


def test_what_does_not_fit_is_passed_over() -> None:
    """An event of a message that is settled changes nothing."""
    state = queue(flight(0), next_offset=1)
    state.apply(Settled(PLACE, (9,)))
    state.apply(Postponed(PLACE, (flight(3),)))
    assert (state.open_count, state.committed) == (1, 0)


def test_many_that_pass_one_which_is_not_settled_leave_nothing() -> None:
    """Messages that are settled after a message that is open for hours cost no memory."""
    state, count, sizes = queue(flight(0, until_ms=1), next_offset=1), 2 * STALE_COUNT_MAX, list[int]()
    for number in range(1, 3 * count + 1):
        state.apply(Took(PLACE, number + 1, (flight(number, until_ms=10**6 + number),)))
        state.apply(Settled(PLACE, (number,)))
        if number % count == 0:
            sizes.append(len(pickle.dumps(state)))
    assert sizes[-1] < 1.5 * sizes[0]
    assert (state.committed, state.open_count, state.ready(10**9, 9)) == (0, 1, [0])
    assert state.due_ms() == 1


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    steps = st.tuples(st.sampled_from(["take", "settle", "postpone", "again"]), st.integers(0, 3), st.integers(0, 3))
    return draw(st.lists(steps, max_size=60))


@given(histories())
def test_a_copy_says_the_same_as_all_events(history: list[tuple[str, int, int]]) -> None:
    """The state of a copy equals the state after all events."""
    state = QueueState(PLACE)
    for stamp, (verb, choice, key) in enumerate(history, 1):
        open_offsets = [one.offset for one in state.copied().flights]
        if verb == "take":
            if state.is_blocked(key):
                state.apply(Took(PLACE, state.next + 1, (), ((state.next, key),)))
            else:
                state.apply(Took(PLACE, state.next + 1, (flight(state.next, stamp=stamp, until_ms=stamp, key=key),)))
        elif verb == "again" and (ready := state.ready(10**6, 10)):
            offset = ready[choice % len(ready)]
            again = flight(offset, stamp=stamp, until_ms=stamp, key=state.key(offset))
            state.apply(Took(PLACE, state.next, (again,)))
        elif open_offsets and verb == "settle":
            state.apply(Settled(PLACE, (open_offsets[choice % len(open_offsets)],)))
        elif open_offsets and verb == "postpone":
            offset = open_offsets[choice % len(open_offsets)]
            state.apply(Postponed(PLACE, (flight(offset, stamp=stamp, until_ms=stamp + 5, key=state.key(offset)),)))
        keys = [one.key for one in state.copied().flights if one.key]
        assert len(keys) == len(set(keys))
    copy = QueueState(PLACE)
    copy.apply(state.copied())
    assert copy.copied() == state.copied()
    assert (
        copy.committed
        == state.committed
        == min(
            [o.offset for o in state.copied().flights] + [offset for offset, _ in state.copied().held] + [state.next]
        )
    )
    for now_ms in (0, 3, 10**6):
        assert copy.ready(now_ms, 100) == state.ready(now_ms, 100)


def test_what_is_settled_ahead_is_stepped_over() -> None:
    """Messages may be settled before they are received; the queue continues after them, and a copy has them."""
    queue = QueueState(PLACE)
    queue.apply(Settled(PLACE, (2, 3, 5)))
    assert (queue.next, queue.ahead_count, queue.committed) == (0, 3, 0)
    assert [queue.is_settled(offset) for offset in range(6)] == [False, False, True, True, False, True]
    assert (queue.unsettled_count(0, 8), queue.unsettled_count(3, 8)) == (5, 3)
    copy = QueueState(PLACE)
    copy.apply(queue.copied())
    assert copy.copied() == queue.copied()
    queue.apply(Settled(PLACE, (0, 1)))
    assert (queue.next, queue.ahead_count) == (4, 1)
    queue.apply(Took(PLACE, 5, (Flight(4, 1, 5, 60),)))
    assert (queue.next, queue.ahead_count, queue.committed, queue.is_settled(4)) == (6, 0, 4, False)
    queue.apply(Moved(PLACE, 0))
    assert not any(queue.is_settled(offset) for offset in range(8))
