# SPDX-License-Identifier: Apache-2.0
"""A table that reads from the floors on has the same open transactions as a table that has read all records."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from libs.formats.records.transaction_record import COMMIT, RENEWED, ROLLBACK, UNKNOWN, Ended, Half
from services.delivery.engine.transactions.table import STALE_COUNT_MAX, Table, Timing

TIMING = Timing(first_ms=6_000, interval_ms=30_000)


def half_at(place: int, number: int, *, check_count: int = 0, first: Half | None = None) -> Half:
    """A half message: new, repeated, or in the place of another half message."""
    return Half(
        queue_offset=place,
        physical_offset=1_000 * place,
        store_time_ms=10 * place,
        size_bytes=100,
        id=f"m{number}",
        first_offset_id=f"offset-{place}" if first is None else first.first_offset_id,
        first_time_ms=10 * place if first is None else first.first_time_ms,
        producer_group="p",
        topic="t",
        queue_id=0,
        check_count=check_count,
    )


class Topics:
    """The records of the two topics, and a table that gets each record at once."""

    def __init__(self) -> None:
        self.halves: list[Half] = []
        self.ended: list[Ended] = []
        self.table = Table(TIMING)

    def begin(self, number: int, *, check_count: int = 0, first: Half | None = None) -> Half:
        """Append a half message: new, repeated, or in the place of another half message."""
        half = half_at(len(self.halves), number, check_count=check_count, first=first)
        self.halves.append(half)
        self.table.apply_half(half)
        self.table.read_to = len(self.halves)
        return half

    def end(self, number: int, how: str) -> None:
        """End a transaction if it is open: each of its half messages gets its own end record."""
        transaction = self.table.find(f"m{number}")
        if transaction is None or transaction.is_moving:
            return
        for offset in sorted(transaction.offsets):
            ids = () if how == UNKNOWN else transaction.ids
            self._say(Ended(len(self.ended), (offset,), ids, how))
        if how == RENEWED:
            self.begin(number, check_count=transaction.half.check_count + 1, first=transaction.half)

    def tidy(self) -> None:
        """End half messages that came after the end of their transaction."""
        for offset, (ids, how) in list(self.table.stale.items()):
            self._say(Ended(len(self.ended), (offset,), ids, how))

    def read_anew(self) -> Table:
        """Return a table that has read from the floors on."""
        half_floor, ended_floor = self.table.floors()
        table = Table(TIMING)
        table.read_to = half_floor
        for said in self.ended[ended_floor:]:
            table.apply_ended(said)
        table.ended_read_to = len(self.ended)
        for half in self.halves[half_floor:]:
            table.apply_half(half)
        table.read_to = len(self.halves)
        table.settle()
        return table

    def _say(self, said: Ended) -> None:
        self.ended.append(said)
        self.table.apply_ended(said)
        self.table.ended_read_to = len(self.ended)


def test_what_has_ended_takes_no_memory_until_its_time() -> None:
    """Also if the time at which its producer would have been asked is far away."""
    table, room = Table(Timing(first_ms=10**9, interval_ms=10**9)), 2 * STALE_COUNT_MAX
    sizes: list[int] = []
    for number in range(3 * room):
        half = half_at(number, number)
        table.apply_half(half)
        table.apply_ended(Ended(number, (number,), (half.id,), COMMIT))
        table.read_to = table.ended_read_to = number + 1
        table.floors()
        if number % room == room - 1:
            sizes.append(len(pickle.dumps(table)))
    assert sizes[-1] < 1.5 * sizes[0]


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", COMMIT, ROLLBACK, RENEWED, UNKNOWN, "tidy"]), st.integers(0, 4)), max_size=60
)


@given(STEPS)
def test_the_floors_are_low_enough(steps: list[tuple[str, int]]) -> None:
    """Open transactions, the number of their checks and the time of the next check are the same."""
    topics = Topics()
    for what, number in steps:
        if what == "begin":
            topics.begin(number)
        elif what == "tidy":
            topics.tidy()
        else:
            topics.end(number, what)
        topics.table.settle()
    topics.tidy()
    again = topics.read_anew()
    before, after = (
        {one.half.id: (one.half.queue_offset, one.half.check_count, one.due_ms, one.offsets) for one in table.all()}
        for table in (topics.table, again)
    )
    assert after == before
    assert again.stale == {}
    open_offsets = {offset for one in topics.table.all() for offset in one.offsets}
    said = {offset for one in topics.ended for offset in one.half_offsets}
    assert open_offsets | said == set(range(len(topics.halves)))
    assert not open_offsets & said
