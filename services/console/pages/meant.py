# SPDX-License-Identifier: Apache-2.0
"""Other: further meanings of a typed text, such as the time in a line of a log. No I/O."""

import re
from collections.abc import Callable

from msgspec import Struct

from libs.moments import NotAMoment, parse_duration, time_text

SECONDS = re.compile(r"[0-9]{10}(?:\.[0-9]{1,6})?")
"""Seconds since the epoch, of the years 2001 to 2286: a key first."""
WORDS_MAX = 10
"""Words of a text that are offered as keys."""
OLDEST = frozenset({"first", "oldest", "begin", "beginning"})
_CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_ZONE = r"(?: ?Z| ?[-+]\d\d:?\d\d| UTC| GMT)?"
_TIMES = (
    re.compile(rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}{_ZONE}"),
    re.compile(rf"\d\d/[A-Z][a-z]{{2}}/\d{{4}}[: ]{_CLOCK}{_ZONE}"),
    re.compile(rf"\d{{1,2}}\.\d{{1,2}}\.\d{{4}},? {_CLOCK}"),
    re.compile(rf"(?:[A-Z][a-z]{{2}} ){{1,2}}\d{{1,2}} {_CLOCK}(?: UTC)?(?: \d{{4}})?"),
    re.compile(rf"(?<![\d:]){_CLOCK}(?![\d:])"),
)
"""Times as programs write them into lines, the most exact form first."""

Understand = Callable[[str], int | None]
"""Returns the moment that a text means, None if it means none."""


class Other(Struct, frozen=True):
    """A text that a reader may mean in place of the typed text, and its kind."""

    text: str
    what: str


def others(text: str, moment_ms: int | None, now_ms: int, understand: Understand) -> tuple[Other, ...]:
    """Return further meanings of a text beside its key and its moment, the most likely meaning first."""
    if moment_ms is not None:
        yesterday_ms = understand(f"yesterday {text.lower().removeprefix('today ')}") if moment_ms > now_ms else None
        return () if yesterday_ms is None else (Other(time_text(yesterday_ms), "the same time of yesterday"),)
    if SECONDS.fullmatch(text):
        return (Other(time_text(round(float(text) * 1_000)), "the same number as seconds since the epoch"),)
    if text.lower() in OLDEST:
        return (Other("1970-01-01", "the time from which the oldest messages are found"),)
    found = [*_times(text, understand), *_spans(text)]
    bare = text.strip("\"'`[](){}<>,;")
    if bare and bare != text and " " not in bare:
        found.append(Other(bare, "the same without signs around it"))
    words = tuple(dict.fromkeys(text.split()))
    if 1 < len(words) <= WORDS_MAX:
        found += [Other(word, "a key") for word in words if understand(word) is None]
    return tuple(found)


def _times(text: str, understand: Understand) -> list[Other]:
    """Return the times that stand in a text, such as in a line of a log."""
    for pattern in _TIMES:
        written = [match[0] for match in pattern.finditer(text) if match[0] != text]
        moments = [understand(re.sub(r"^(\d\d)/(\w{3})/(\d{4})[: ]", r"\1 \2 \3 ", one)) for one in written]
        if found := [time_text(moment_ms) for moment_ms in moments if moment_ms is not None]:
            return [Other(one, "the time in it") for one in dict.fromkeys(found)]
    return []


def _spans(text: str) -> list[Other]:
    try:
        parse_duration(text)
    except NotAMoment:
        return []
    return [Other(f"-{text}", "so long ago")]
