# SPDX-License-Identifier: Apache-2.0
"""The page of `reput top`: the verdict, a line for each service, disks, topics, groups. Pure except for colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cli.commands.state.beside import beside_document
from cli.commands.state.page import disk_lines, labelled_lines, verdict_lines
from cli.commands.state.traffic import Traffic, group_rows, topic_rows
from cli.output.moments import time_text
from cli.output.tables import table_lines
from libs.figures import duration_text, rate_text, size_rate_text, size_text
from libs.verdict import troubles_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.commands.state.states import States

TOPIC_COLUMNS = ("topic", "in_per_s", "out_per_s", "message_count", "queue_count", "lag")
GROUP_COLUMNS = ("group", "topic", "out_per_s", "lag", "left_s")
ROWS_MIN = 3
"""Least number of topics and groups that are shown, even on a low terminal."""


class View(Struct, frozen=True):
    """A look and the look before it, which the first view does not have."""

    states: States
    traffic: Traffic
    states_before: States | None = None
    traffic_before: Traffic | None = None

    def per_s(self, service: str, name: str) -> float | None:
        """Return the growth per second of a number in a service's state, None if unknown, as after a new start."""
        before, after = (getattr(states, service, None) for states in (self.states_before, self.states))
        if self.states_before is None or before is None or after is None or before.start_time != after.start_time:
            return None
        seconds = self.states.time_s - self.states_before.time_s
        return (getattr(after, name) - getattr(before, name)) / seconds if seconds > 0 else None


def top_lines(view: View, width: int, height: int) -> Iterator[str]:
    """Yield the page, at most `height` lines if the tables fit into the width."""
    head = [*verdict_lines(troubles_of(view.states), width), ""]
    head += labelled_lines(_blocks(view), width)
    topics, groups = topic_rows(view.traffic_before, view.traffic), group_rows(view.traffic_before, view.traffic)
    room = height - len(head) - 2 * (3 if groups else 2)
    group_room = min(len(groups), max(room // 3, ROWS_MIN))
    topic_room = max(room - group_room, ROWS_MIN)
    yield from head
    yield from _table(topics, TOPIC_COLUMNS, width, topic_room, "topic", spare=("queue_count",))
    if groups:
        yield from _table(groups, GROUP_COLUMNS, width, max(group_room, room - len(topics)), "group", spare=())
    if view.traffic.is_cut:
        yield "there are more queues or groups than are looked at"


def document(view: View) -> dict[str, object]:
    """Return the page as JSON. Rates are None at the first look."""
    log, index = view.states.log, view.states.index
    troubles = troubles_of(view.states)
    answer_ms = {name: round(ms, 1) for name, ms in view.states.answer_ms.items()}
    disks: list[dict[str, object]] = [
        {
            "service": "commitlog",
            "path": one.path,
            "used_percent": one.disk_used_percent,
            "free_bytes": one.disk_free_bytes,
            "total_bytes": one.disk_total_bytes,
        }
        for one in (log.log_directories if log is not None else ())
    ]
    if index is not None and index.disk_total_bytes:
        used, free, total = index.disk_used_percent, index.disk_free_bytes, index.disk_total_bytes
        disks.append({"service": "indexer", "used_percent": used, "free_bytes": free, "total_bytes": total})
    return {
        "time": time_text(round(view.states.time_s * 1000)),
        "is_healthy": all(trouble.is_note for trouble in troubles),
        "troubles": [trouble.text for trouble in troubles],
        "commitlog": {
            "messages_per_s": _rounded(view.per_s("log", "appended_message_count")),
            "bytes_per_s": _rounded(view.per_s("log", "max_physical_offset")),
            "syncs_per_s": _rounded(view.per_s("log", "sync_count")),
            "answer_ms": answer_ms.get("commitlog"),
        },
        "indexer": {
            "records_per_s": _rounded(view.per_s("index", "applied_record_count")),
            "behind_bytes": _behind_bytes(view.states),
            "answer_ms": answer_ms.get("indexer"),
        },
        "janitor": {"answer_ms": answer_ms.get("janitor")},
        **beside_document(view.states.beside),
        "disks": disks,
        "topics": topic_rows(view.traffic_before, view.traffic),
        "groups": group_rows(view.traffic_before, view.traffic),
        "is_cut": view.traffic.is_cut,
    }


def _blocks(view: View) -> Iterator[tuple[str, list[str]]]:
    states = view.states
    if states.log is not None:
        names = {"messages": "appended_message_count", "bytes": "max_physical_offset", "syncs": "sync_count"}
        rates = {noun: rate for noun, name in names.items() if (rate := view.per_s("log", name)) is not None}
        parts = [size_rate_text(rate) if noun == "bytes" else rate_text(rate, noun) for noun, rate in rates.items()]
        yield "commitlog", [", ".join([*parts, _answer_text(states, "commitlog")])]
    if states.index is not None:
        records = view.per_s("index", "applied_record_count")
        behind = _behind_bytes(states)
        parts = [rate_text(records, "records")] if records is not None else []
        parts.append(f"{size_text(behind)} behind" if behind else "up to date")
        yield "indexer", [", ".join([*parts, _answer_text(states, "indexer")])]
    if states.retention is not None:
        work = "deletes segments" if states.retention.is_running else "idle"
        yield "janitor", [f"{work}, {_answer_text(states, 'janitor')}"]
    for one in states.beside:
        if one.serves:
            yield one.service, [f"serves, answers in {duration_text(one.answer_ms / 1000)}"]
    if states.log is not None and (disks := list(disk_lines(states, states.log))):
        yield "disk", disks


def _answer_text(states: States, service: str) -> str:
    return f"answers in {duration_text(states.answer_ms.get(service, 0.0) / 1000)}"


def _behind_bytes(states: States) -> int | None:
    if states.index is None:
        return None
    end = states.log.confirmed_physical_offset if states.log is not None else states.index.confirmed_physical_offset
    return max(end - states.index.indexed_physical_offset, 0)


def _table(
    rows: Sequence[dict[str, object]], columns: Sequence[str], width: int, room: int, noun: str, spare: Sequence[str]
) -> Iterator[str]:
    """Yield a table of as many rows as there is room for, and the number of the other rows."""
    yield ""
    if not rows:
        yield f"no {noun} yet"
        return
    yield from table_lines(rows[:room], columns, width, spare=spare)
    if len(rows) > room:
        yield f"and {len(rows) - room:,} more: reput top --once --json"


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
