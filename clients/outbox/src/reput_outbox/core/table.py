# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - the statements contain names of tables and of values, never a value
"""Table: the operations on the outbox's two tables, each inside a transaction of its caller. Plain SQL, no driver.

Invariants: the rows that are ASSIGNED are the batch `next_number` of the writer `writer_id`, and stay it until the
store answered. Every change by a relay begins with an update of the lane's row, which fails if another relay took over
or the database was restored since: so two relays never change the rows at the same time, whatever their clocks and
pauses are, and no relay changes rows of another past.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reput_outbox.core.errors import LeaseLost
from reput_outbox.core.rows import COLUMNS_OF_ENTRY, Entry, Row, State

REASON_SIZE_MAX = 500
CLEANED_MAX = 1_000
"""Most sent rows that a transaction deletes."""
SHOWN_MAX = 20
_ROW = ", ".join(Row._fields)


class Answer(NamedTuple):
    """The rows of a query, and the number of rows that a statement changed."""

    rows: Sequence[Sequence[Any]]
    changed_count: int


Execute = Callable[[str, Mapping[str, Any]], Answer]
"""Runs a statement whose values are named :name."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The relay's row: writer, number of the next batch, and the relay that holds it."""

    writer_id: str
    next_number: int
    base: int
    """Batches of former writers. Kept rows have `base` plus the number of their batch."""
    check_id: int
    """Rows up to this id may be stored under another writer: the relay asks the store before it sends them."""
    holder: str
    beat: int
    trouble: str


class Claim(NamedTuple):
    """The rows of the next batch. `doubtful` rows are not assigned yet: they may be stored already."""

    lane: Lane
    rows: list[Row]
    doubtful: list[Row]


class RefusedRow(NamedTuple):
    """A row that the store refused, as `status` shows it."""

    id: int
    topic: str
    key: str
    attempts: int
    reason: str


class Table:
    """The tables of an outbox, in a transaction. `name` and `lane_name` are quoted names."""

    def __init__(self, execute: Execute, name: str = "reput_outbox", lane_name: str = "reput_outbox_relay") -> None:
        self._run, self._name, self._lane_name = execute, name, lane_name

    def add(self, entry: Entry) -> None:
        """Insert a row in the application's transaction."""
        columns = (*COLUMNS_OF_ENTRY, "state", "attempts", "reason")
        sql = (
            f"INSERT INTO {self._name} ({', '.join(columns)}) VALUES ({', '.join(':' + column for column in columns)})"
        )
        self._run(sql, {**entry.values(), "state": State.PENDING.value, "attempts": 0, "reason": ""})

    def lane(self) -> Lane:
        """Return the relay's row, which the first call makes. Rows of before are doubtful: the row may be lost."""
        if (found := self.find_lane()) is None:
            self._run(
                f"INSERT INTO {self._lane_name} (id, writer_id, next_number, base, check_id, holder, beat, trouble) "
                f"VALUES (1, :writer_id, 0, 0, (SELECT COALESCE(MAX(id), 0) FROM {self._name}), '', 0, '') "
                "ON CONFLICT (id) DO NOTHING",
                {"writer_id": new_writer_id()},
            )
            found = self.find_lane()
        assert found is not None
        return found

    def find_lane(self) -> Lane | None:
        """Return the relay's row, None before the first relay."""
        sql = (
            f"SELECT writer_id, next_number, base, check_id, holder, beat, trouble FROM {self._lane_name} WHERE id = 1"
        )
        found = self._run(sql, {}).rows
        return Lane(*found[0]) if found else None

    def take(self, me: str, seen: Lane) -> bool:
        """Take over from the holder, if it has not moved since `seen`."""
        return self._changed(
            "holder = :me, beat = beat + 1", "holder = :old AND beat = :beat", me=me, old=seen.holder, beat=seen.beat
        )

    def release(self, me: str) -> None:
        """Let another relay take over at once."""
        self._changed("holder = '', beat = beat + 1", "holder = :me", me=me)

    def beat(self, me: str) -> None:
        """Show that the relay lives. Raises LeaseLost."""
        self._hold_any("beat = beat + 1", me)

    def tell(self, me: str, trouble: str) -> None:
        """Record why the relay does not advance, "" if it does. Raises LeaseLost."""
        self._hold_any("beat = beat + 1, trouble = :trouble", me, trouble=trouble[:REASON_SIZE_MAX])

    def claim(self, me: str, rows_max: int, bytes_max: int) -> Claim:
        """Return the batch that is assigned, or assign the next rows. Raises LeaseLost."""
        self.beat(me)
        lane = self.lane()
        if not (rows := self._assigned()):
            ids = self._next_ids(rows_max, bytes_max)
            if doubtful := [one for one in ids if one <= lane.check_id]:
                return Claim(lane, [], self._rows("id IN", doubtful))
            rows = self._assign(ids)
        return Claim(lane, rows, [])

    def settle_doubtful(self, lane: Lane, stored: Iterable[Row], unsent: Iterable[Row]) -> None:
        """Mark the rows that the store has, and assign the others as the next batch. Raises LeaseLost."""
        self._hold("beat = beat + 1, trouble = ''", lane)
        stored = list(stored)
        self._set_by_id([row.id for row in stored], State.SENT, sent_ms=_now_ms())
        self._release_keys(stored)
        self._assign([row.id for row in unsent])

    def settle(self, lane: Lane, rows: Sequence[Row], *, keep: bool) -> None:
        """Mark the assigned rows as sent, or delete them, and go on to the next number. Raises LeaseLost."""
        self._hold("next_number = next_number + 1, beat = beat + 1, trouble = ''", lane)
        if keep:
            sql = f"UPDATE {self._name} SET state = :sent, sent_ms = :now, batch = :batch WHERE state = :assigned"
            values = {"sent": State.SENT.value, "now": _now_ms(), "batch": lane.base + lane.next_number}
        else:
            sql, values = f"DELETE FROM {self._name} WHERE state = :assigned", {}
        self._run(sql, {**values, "assigned": State.ASSIGNED.value})
        self._release_keys(rows)

    def refuse(self, lane: Lane, refused: Iterable[Row], reason: str) -> None:
        """Set rows aside, and block the assigned rows of their keys behind them. Raises LeaseLost."""
        self._hold("beat = beat + 1", lane)
        for row in _first_of_keys(refused):
            self._run(
                f"UPDATE {self._name} SET state = :state, attempts = attempts + 1, reason = :reason WHERE id = :id",
                {"state": State.REFUSED.value, "reason": reason[:REASON_SIZE_MAX], "id": row.id},
            )
            if row.order_key is not None:
                self._run(
                    f"UPDATE {self._name} SET state = :blocked "
                    "WHERE state = :assigned AND topic = :topic AND order_key = :key AND id > :id",
                    {
                        "blocked": State.BLOCKED.value, "assigned": State.ASSIGNED.value,
                        "topic": row.topic, "key": row.order_key, "id": row.id,
                    },
                )  # fmt: skip

    def unassign(self, lane: Lane, first_id: int) -> None:
        """Take the rows from an id on out of the batch, because a part of it is refused. Raises LeaseLost."""
        self._hold("beat = beat + 1", lane)
        self._unassign(first_id)

    def rewind(self, lane: Lane, number: int) -> int:
        """Send the batches from a number on again, because the store lost them. Returns the number of their rows.

        Raises LeaseLost.
        """
        self._hold("next_number = :number, beat = beat + 1", lane, number=number)
        self._unassign(0)
        sql = f"UPDATE {self._name} SET state = :pending, sent_ms = NULL WHERE state = :sent AND batch >= :number"
        return self._run(
            sql, {"pending": State.PENDING.value, "sent": State.SENT.value, "number": lane.base + number}
        ).changed_count

    def renew(self, lane: Lane) -> None:
        """Begin a new writer, and doubt all rows of now. Batches of the former writer are not sent again.

        Raises LeaseLost.
        """
        self._hold(
            "writer_id = :writer_id, base = base + next_number, next_number = 0, beat = beat + 1, "
            f"check_id = (SELECT COALESCE(MAX(id), 0) FROM {self._name})",
            lane, writer_id=new_writer_id(),
        )  # fmt: skip
        self._unassign(0)

    def retry(self, rows_max: int, row_id: int | None = None) -> int:
        """Let refused rows be sent again, those with the fewest attempts first, or a single row. Returns their number.

        The rows behind them go on when they are stored.
        """
        condition, values = ("", {}) if row_id is None else (" AND id = :id", {"id": row_id})
        found = self._run(
            f"SELECT id FROM {self._name} WHERE state = :state{condition} ORDER BY attempts, id LIMIT :limit",
            {"state": State.REFUSED.value, "limit": rows_max, **values},
        )
        return self._set_by_id([row[0] for row in found.rows], State.PENDING)

    def discard(self, row_id: int) -> bool:
        """Delete a refused row, whose message is never sent, and let the rows behind it go on."""
        rows = self._rows(f"state = {State.REFUSED.value} AND id IN", [row_id])
        for row in rows:
            self._run(f"DELETE FROM {self._name} WHERE id = :id", {"id": row.id})
        self._release_keys(rows, also_first=True)
        return bool(rows)

    def clean(self, keep_s: float) -> int:
        """Delete the oldest sent rows that were kept long enough. Returns their number, at most CLEANED_MAX."""
        found = self._run(
            f"SELECT id, sent_ms FROM {self._name} WHERE state = :state ORDER BY id LIMIT :limit",
            {"state": State.SENT.value, "limit": CLEANED_MAX},
        )
        end_ms = _now_ms() - round(keep_s * 1000)
        if not (old := [row_id for row_id, sent_ms in found.rows if (sent_ms or 0) <= end_ms]):
            return 0
        names, values = _listed(old)
        return self._run(f"DELETE FROM {self._name} WHERE id IN ({names})", values).changed_count

    def has_work(self) -> bool:
        """Return whether rows are pending or assigned."""
        sql = f"SELECT 1 FROM {self._name} WHERE state = :state LIMIT 1"
        return any(self._run(sql, {"state": state.value}).rows for state in (State.PENDING, State.ASSIGNED))

    def counts(self) -> dict[State, int]:
        """Return the number of rows in each state."""
        found = {
            row[0]: row[1] for row in self._run(f"SELECT state, COUNT(*) FROM {self._name} GROUP BY state", {}).rows
        }
        return {state: found.get(state.value, 0) for state in State}

    def oldest_ms(self) -> int | None:
        """Return the time at which the oldest row that the relay has to send was added, None without such a row."""
        sql = f"SELECT created_ms FROM {self._name} WHERE state = :state ORDER BY id LIMIT 1"
        found = [
            row for state in (State.PENDING, State.ASSIGNED) for row in self._run(sql, {"state": state.value}).rows
        ]
        return min((row[0] for row in found), default=None)

    def last_sent_ms(self) -> int | None:
        """Return the time at which the newest row that is kept was sent, None without such a row."""
        sql = f"SELECT sent_ms FROM {self._name} WHERE state = :state ORDER BY id DESC LIMIT 1"
        found = self._run(sql, {"state": State.SENT.value}).rows
        return found[0][0] if found else None

    def refused(self) -> list[RefusedRow]:
        """Return the oldest refused rows."""
        sql = (
            f"SELECT id, topic, COALESCE(order_key, ''), attempts, reason FROM {self._name} "
            "WHERE state = :state ORDER BY id LIMIT :limit"
        )
        return [RefusedRow(*row) for row in self._run(sql, {"state": State.REFUSED.value, "limit": SHOWN_MAX}).rows]

    def _changed(self, changes: str, condition: str, **values: Any) -> bool:
        sql = f"UPDATE {self._lane_name} SET {changes} WHERE id = 1 AND {condition}"
        return self._run(sql, values).changed_count == 1

    def _hold(self, changes: str, lane: Lane, **values: Any) -> None:
        """Change the lane, which locks it until the end of the transaction. Raises LeaseLost if it moved."""
        if not self._changed(changes, "holder = :me AND beat = :at", me=lane.holder, at=lane.beat, **values):
            raise LeaseLost("another relay took over")

    def _hold_any(self, changes: str, me: str, **values: Any) -> None:
        """Change the lane like `_hold`, whatever this relay did last. Raises LeaseLost."""
        if not self._changed(changes, "holder = :me", me=me, **values):
            raise LeaseLost("another relay took over")

    def _assigned(self) -> list[Row]:
        sql = f"SELECT {_ROW} FROM {self._name} WHERE state = :state ORDER BY id"
        return [Row(*row) for row in self._run(sql, {"state": State.ASSIGNED.value}).rows]

    def _next_ids(self, rows_max: int, bytes_max: int) -> list[int]:
        """Return the ids of the next rows, and block those that have a refused row of their key before them."""
        found = self._run(
            f"SELECT id, topic, order_key, size FROM {self._name} WHERE state = :state ORDER BY id LIMIT :limit",
            {"state": State.PENDING.value, "limit": rows_max},
        ).rows
        held = self._held_keys({key for _, _, key, _ in found if key is not None})
        ids: list[int] = []
        blocked: list[int] = []
        size_bytes = 0
        for row_id, topic, key, size in found:
            if held.get((topic, key), row_id) < row_id:
                blocked.append(row_id)
                continue
            if ids and size_bytes + size > bytes_max:
                break
            ids.append(row_id)
            size_bytes += size
        self._set_by_id(blocked, State.BLOCKED)
        return ids

    def _held_keys(self, keys: set[str]) -> dict[tuple[str, str], int]:
        """Return the first refused or blocked row of each of these keys."""
        refused = f"SELECT 1 FROM {self._name} WHERE state >= {State.REFUSED.value} LIMIT 1"
        if not keys or not self._run(refused, {}).rows:
            return {}
        names, values = _listed(sorted(keys))
        sql = (
            f"SELECT topic, order_key, MIN(id) FROM {self._name} "
            f"WHERE state >= {State.REFUSED.value} AND order_key IN ({names}) GROUP BY topic, order_key"
        )
        return {(topic, key): first for topic, key, first in self._run(sql, values).rows}

    def _assign(self, ids: Sequence[int]) -> list[Row]:
        self._set_by_id(ids, State.ASSIGNED)
        return self._assigned() if ids else []

    def _rows(self, condition: str, ids: Sequence[int]) -> list[Row]:
        names, values = _listed(ids)
        sql = f"SELECT {_ROW} FROM {self._name} WHERE {condition} ({names}) ORDER BY id"
        return [Row(*row) for row in self._run(sql, values).rows]

    def _unassign(self, first_id: int) -> None:
        self._run(
            f"UPDATE {self._name} SET state = :pending WHERE state = :assigned AND id >= :first",
            {"pending": State.PENDING.value, "assigned": State.ASSIGNED.value, "first": first_id},
        )

    def _set_by_id(self, ids: Sequence[int], state: State, sent_ms: int | None = None) -> int:
        if not ids:
            return 0
        names, values = _listed(ids)
        sql = f"UPDATE {self._name} SET state = :state, sent_ms = :sent_ms WHERE id IN ({names})"
        return self._run(sql, {"state": state.value, "sent_ms": sent_ms, **values}).changed_count

    def _release_keys(self, rows: Iterable[Row], *, also_first: bool = False) -> None:
        """Let the rows behind formerly refused rows go on."""
        for topic, key in {(row.topic, row.order_key) for row in rows if row.attempts or also_first}:
            if key is not None:
                self._run(
                    f"UPDATE {self._name} SET state = :pending "
                    "WHERE state = :blocked AND topic = :topic AND order_key = :key",
                    {"pending": State.PENDING.value, "blocked": State.BLOCKED.value, "topic": topic, "key": key},
                )


def _first_of_keys(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows without a key, and the first of each key."""
    seen = set()
    for row in rows:
        key = (row.topic, row.order_key)
        if row.order_key is None or key not in seen:
            yield row
        seen.add(key)


def new_writer_id() -> str:
    """Return a writer id that no other outbox has."""
    return f"outbox/{uuid.uuid4().hex}"


def _listed(values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return the names of a list of values in a statement, and the values by their names."""
    named = {f"v{number}": value for number, value in enumerate(values)}
    return ", ".join(f":{name}" for name in named), named


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
