# SPDX-License-Identifier: Apache-2.0
"""Find: what a text in the box may mean, and the page of its results."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import ClassVar, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from libs.figures import many
from libs.moments import NotAMoment, parse_time, time_text
from services.console.pages.page import Page, command
from services.console.pages.rows import MessageRow

TEXT_CHARACTERS_MAX = 512
OFFSET_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
NAME = re.compile(r"[A-Za-z0-9_%|-]+")
MINUTE_MS = 60_000
LAST_MS = 253_402_300_799_999 - MINUTE_MS
"""The last minute of the year 9999."""
NAMES_SHOWN_MAX = 20

Outcome = Literal["start", "found", "not_found", "could_not_look"]


class Wanted(Struct, frozen=True):
    """The meanings that a text may have. An empty text has none."""

    text: str
    key: str = ""
    """A key or a unique id of messages."""
    offset_id: str = ""
    name: str = ""
    """A part of the name of a topic or a group."""
    moment_ms: int | None = None
    """A store time: messages of the minute that begins there are shown."""


class Search(Struct, frozen=True):
    """The answers of the store to the meanings of a text."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    messages: Sequence[MessageRow] = ()
    near: Sequence[MessageRow] = ()
    looked_topic_count: int = 0
    is_cut: bool = False


class FindPage(Page, frozen=True, kw_only=True):
    """The page of the box and its results."""

    template: ClassVar = "find.html"

    text: str
    topic: str
    """Only this topic was searched; empty for all topics."""
    outcome: Outcome
    verdict: str
    """The outcome as a sentence."""
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    messages: tuple[MessageRow, ...] = ()
    """Messages with this key or id, in all topics, oldest first."""
    moment_ms: int | None = None
    near: tuple[MessageRow, ...] = ()
    """Messages of the minute that begins at `moment_ms`."""
    looked_topic_count: int = 0
    is_cut: bool = False
    """There are more messages than shown."""

    @property
    def status(self) -> int:
        """The status of HTTP: a search without results is a page like others, an outage is not."""
        return 503 if self.outcome == "could_not_look" else 200


def wanted(text: str, zone_name: str, now: datetime) -> Wanted:
    """Return the meanings of a text. A time without a zone is in the zone of this name, else in UTC."""
    text = text.strip()[:TEXT_CHARACTERS_MAX]
    if not text:
        return Wanted("")
    is_word = " " not in text
    return Wanted(
        text,
        key=text if is_word else "",
        offset_id=text.upper() if OFFSET_ID.fullmatch(text) else "",
        name=text if NAME.fullmatch(text) else "",
        moment_ms=_moment_ms(text, zone_of(zone_name), now),
    )


def zone_of(name: str) -> tzinfo:
    """Return the zone of this name, UTC if there is none."""
    try:
        return ZoneInfo(name) if re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", name) else UTC
    except (ValueError, KeyError, OSError):
        return UTC


def _moment_ms(text: str, zone: tzinfo, now: datetime) -> int | None:
    """Return the moment that a text means, None if it means none. Numbers of less than 13 digits are keys."""
    if re.fullmatch(r"-?[0-9]{1,11}", text):
        return None
    try:
        moment_ms = parse_time(text, now=now, zone=zone)
    except NotAMoment:
        return None
    return moment_ms if 0 <= moment_ms <= LAST_MS else None


def matching(names: Iterable[str], part: str) -> list[str]:
    """Return the names that have this part, the whole name first, then names that begin with it."""
    part = part.lower()
    found = [name for name in names if part in name.lower()]
    return sorted(found, key=lambda name: (name.lower() != part, not name.lower().startswith(part), name))


def page_of(wanted: Wanted, topic: str, search: Search, gaps: tuple[object, ...]) -> FindPage:
    """Return the page of a search."""
    messages = tuple(sorted({row.id: row for row in search.messages}.values(), key=lambda row: row.store_time_ms))
    outcome = _outcome(wanted, search, is_partial=bool(gaps))
    return FindPage(
        commands=_commands(wanted, topic, messages),
        gaps=gaps,  # type: ignore[arg-type]
        text=wanted.text,
        topic=topic,
        outcome=outcome,
        verdict=_verdict(outcome, messages, search),
        topics=tuple(search.topics[:NAMES_SHOWN_MAX]),
        groups=tuple(search.groups[:NAMES_SHOWN_MAX]),
        messages=messages,
        moment_ms=wanted.moment_ms,
        near=tuple(sorted(search.near, key=lambda row: row.store_time_ms)),
        looked_topic_count=search.looked_topic_count,
        is_cut=search.is_cut,
    )


def _outcome(wanted: Wanted, search: Search, *, is_partial: bool) -> Outcome:
    if not wanted.text:
        return "start"
    if search.messages or search.topics or search.groups or search.near:
        return "found"
    return "could_not_look" if is_partial else "not_found"


def _verdict(outcome: Outcome, messages: Sequence[MessageRow], search: Search) -> str:
    looked = many(search.looked_topic_count, "topic")
    match outcome:
        case "start":
            return ""
        case "not_found":
            return f"Not found: no name, and no message in {looked}."
        case "could_not_look":
            return "Could not look everywhere: it may be there."
    if messages:
        places = len({row.topic for row in messages})
        return f"{many(len(messages), 'message')} in {many(places, 'topic')}; {looked} searched."
    if search.near:
        return f"{many(len(search.near), 'message')} of this minute."
    return "A name."


def _commands(wanted: Wanted, topic: str, messages: Sequence[MessageRow]) -> tuple[str, ...]:
    """Return the commands that find the same: the command line searches one topic at a time."""
    found = []
    if wanted.offset_id:
        found.append(command("query", "id", wanted.offset_id))
    names = list(dict.fromkeys(row.topic for row in messages)) or ([topic] if topic else ["TOPIC"])
    if wanted.key and (messages or wanted.moment_ms is None):
        found += [command("query", "key", name, wanted.key) for name in names[:3]]
    if wanted.moment_ms is not None:
        start, end = time_text(wanted.moment_ms), time_text(wanted.moment_ms + MINUTE_MS)
        found.append(command("query", "time", topic or "TOPIC", "--start", start, "--end", end))
    return tuple(found) if wanted.text else (command("topics", "list"), command("groups", "list"))
