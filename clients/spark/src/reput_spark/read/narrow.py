# SPDX-License-Identifier: Apache-2.0
"""Narrowing: turns comparisons of single columns into options that read less. Uses neither Spark nor the network.

Invariant: rows that the narrowed options leave out do not pass the condition. Rows that they read may not pass it
either, so the condition stays in the query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from reput_spark.read.options import EPOCH, KEYS_COUNT_MAX, QUEUE_ID_MAX, assignment, queue_numbers, time_ms
from reput_spark.values import topic_names

TIME_END_MS = 253_402_300_799_999
"""The end of the year 9999: no store time is as late, and options accept no later time."""
EARLY_END_MS = 10**11
"""3 March 1973."""
OFFSET_END = 2**63 - 1
KEY = re.compile(r"\S+")
"""A single key as the index has it. A column value with several keys, separated by spaces, is not looked up."""
TAG = re.compile(r"[\w.:@/-]+", re.ASCII)
"""A tag that means itself in an expression of tags."""
STARTS = ("startingOffsets", "startingOffsetsByTimestamp")
ENDS = ("endingOffsets", "endingOffsetsByTimestamp")


class Comparison(NamedTuple):
    """A relation of a column to a value, which every row that passes the condition fulfils."""

    column: str
    relation: str
    """`=`, `<`, `<=`, `>` or `>=`."""
    values: tuple[Any, ...]
    """A single value, or for `=` several values of which any matches. Times are microseconds since the epoch."""


Asked = Sequence[Comparison]
Options = dict[str, str]


def narrowed(given: Mapping[str, str], comparisons: Iterable[Comparison]) -> Options | None:
    """Return options that read less, by their canonical names, or None if no row can pass."""
    found = {name: text for name, text in given.items() if not _is_whole(name, text)}
    all_asked = list(comparisons)
    for column, narrow in _NARROWING.items():
        asked = [comparison for comparison in all_asked if comparison.column == column]
        if asked and not narrow(found, asked):
            return None
    return found


def offset_range(comparisons: Iterable[Comparison]) -> tuple[int, int]:
    """Return the first queue offset that can pass and the end, exclusive."""
    return _span([comparison for comparison in comparisons if comparison.column == "offset"], OFFSET_END)


def has_positions(given: Mapping[str, str]) -> bool:
    """Return whether the options already have start or end positions, or look up keys."""
    return any(name in given for name in (*STARTS, *ENDS, "startingTimestamp", "endingTimestamp", "key", "keys"))


def _is_whole(name: str, text: str) -> bool:
    """Return whether an option has the effect of its default in a batch read."""
    return (name, text.strip().lower()) in (("startingOffsets", "earliest"), ("endingOffsets", "latest"))


def _times(found: Options, asked: Asked) -> bool:
    first_us, end_us = _span(asked, TIME_END_MS * 1000)
    first, end = _milliseconds(first_us), _milliseconds(end_us)
    if first > 0 and not any(name in found for name in STARTS):
        own = time_ms("startingTimestamp", found.get("startingTimestamp", "0"))
        found["startingTimestamp"] = _time_text(max(first, own))
    if end < TIME_END_MS and not any(name in found for name in ENDS):
        own = time_ms("endingTimestamp", found.get("endingTimestamp", _time_text(end)))
        found["endingTimestamp"] = _time_text(min(end, own))
    begins = time_ms("startingTimestamp", found.get("startingTimestamp", "0"))
    return max(first, begins) < min(end, time_ms("endingTimestamp", found.get("endingTimestamp", _time_text(end))))


def _time_text(value_ms: int) -> str:
    """Return a time as an option. Early times are ISO-8601, because as numbers they look like seconds."""
    if value_ms >= EARLY_END_MS:
        return str(value_ms)
    return (EPOCH + timedelta(milliseconds=value_ms)).isoformat(timespec="milliseconds")


def _milliseconds(time_us: int) -> int:
    """Return the first whole millisecond that is not before a time: store times are whole milliseconds."""
    return min(max(-(-time_us // 1000), 0), TIME_END_MS)


def _span(asked: Asked, end: int) -> tuple[int, int]:
    """Return the first whole number that can pass, from 0, and the end, exclusive."""
    first = 0
    for _, relation, values in asked:
        low, high = min(values), max(values)
        match relation:
            case "=":
                first, end = max(first, low), min(end, high + 1)
            case ">":
                first = max(first, low + 1)
            case ">=":
                first = max(first, low)
            case "<":
                end = min(end, high)
            case "<=":
                end = min(end, high + 1)
    return first, end


def _queues(found: Options, asked: Asked) -> bool:
    wanted = _equal_to(asked)
    if wanted is None:
        return True
    if "assign" in found:
        assigned = assignment("assign", found["assign"])
        return _assign(found, {topic: [one for one in ids if one in wanted] for topic, ids in assigned.items()})
    own = set(queue_numbers("queues", found["queues"])) if "queues" in found else range(QUEUE_ID_MAX + 1)
    kept = sorted(queue_id for queue_id in wanted if queue_id in own)
    found["queues"] = ",".join(map(str, kept))
    return bool(kept)


def _topics(found: Options, asked: Asked) -> bool:
    wanted = _equal_to(asked)
    if wanted is None or any(name in found for name in (*STARTS, *ENDS)):  # these may name any of the topics
        return True
    if "assign" in found:
        assigned = assignment("assign", found["assign"])
        return _assign(found, {topic: list(ids) for topic, ids in assigned.items() if topic in wanted})
    if "subscribePattern" in found:
        kept = sorted(topic for topic in wanted if re.fullmatch(found["subscribePattern"], topic))
        found["subscribePattern"] = "|".join(map(re.escape, kept))
    else:
        kept = [topic for topic in topic_names("subscribe", found["subscribe"]) if topic in wanted]
        found["subscribe"] = ",".join(kept)
    return bool(kept)


def _assign(found: Options, queues: Mapping[str, list[int]]) -> bool:
    kept = {topic: ids for topic, ids in queues.items() if ids}
    found["assign"] = json.dumps(kept)
    return bool(kept)


def _keys(found: Options, asked: Asked) -> bool:
    wanted = _equal_to(asked)
    if wanted is None or "key" in found or "keys" in found:
        return True
    try:
        texts = sorted(key.decode() if isinstance(key, bytes) else str(key) for key in wanted)
    except UnicodeDecodeError:
        return True
    if len(texts) <= KEYS_COUNT_MAX and all(map(KEY.fullmatch, texts)):
        found["keys"] = json.dumps(texts)
    return bool(wanted)


def _tags(found: Options, asked: Asked) -> bool:
    wanted = _equal_to(asked)
    if wanted is None or not all(TAG.fullmatch(tag) for tag in wanted):
        return True
    own = found.get("tag", "").strip()
    kept = sorted(wanted if own in ("", "*") else wanted & {tag.strip() for tag in own.split("||")})
    found["tag"] = "||".join(kept)
    return bool(kept)


def _equal_to(asked: Asked) -> set[Any] | None:
    """Return the possible values of a column, None if they are not known."""
    sets = [set(values) for _, relation, values in asked if relation == "="]
    return set.intersection(*sets) if sets else None


_NARROWING: dict[str, Callable[[Options, Asked], bool]] = {
    "timestamp": _times,
    "partition": _queues,
    "topic": _topics,
    "key": _keys,
    "tag": _tags,
}
"""The functions that apply each column's comparisons to the options. They return False if no row can pass."""
