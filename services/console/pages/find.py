# SPDX-License-Identifier: Apache-2.0
"""Find: the meanings of a text in the box, and the page of its results."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import ClassVar, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from libs.figures import many, verb
from libs.moments import NotAMoment, parse_time, time_text
from services.console.pages.meant import SECONDS, Other, others
from services.console.pages.page import Page, command
from services.console.pages.rows import MessageRow

TEXT_CHARACTERS_MAX = 512
OFFSET_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
LIKE_A_TIME = re.compile(r"^[-+]?\d+[:./]\d\d?(?!\d)|^\d{4}-\d\d?-\d|^[-+]\d+[a-z]")
LIKE_AN_ID = re.compile(r"[0-9A-Fa-f]{20,60}")
NAME = re.compile(r"[A-Za-z0-9_%|-]+")
MINUTE_MS = 60_000
LAST_MS = 253_402_300_799_999 - MINUTE_MS
"""The last minute of the year 9999."""
NAMES_SHOWN_MAX = 20
NOWHERE = -1
"""Before the first place of the log."""

Outcome = Literal["start", "found", "not_found", "could_not_look", "in_parts"]
"""`in_parts`: nothing was found so far, and other topics are left."""


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
    time_refusal: str = ""
    """Why a text that looks like a time is none, with the forms that are understood."""
    is_ahead: bool = False
    """The moment is still to come."""
    others: tuple[Other, ...] = ()
    """Texts that may be meant instead."""


class More(Struct, frozen=True):
    """A topic with more messages of a key than are shown."""

    topic: str
    older: str = ""
    """`older` of the next part of this topic; empty if the first part shows none of its messages."""
    shard: str = ""
    """Its shard, in a search at several shards."""


class FoundAt(Struct, frozen=True):
    """The results at a shard."""

    shard: str
    outcome: Outcome | Literal[""]
    """Empty for a shard that was not asked."""
    verdict: str


class NameAt(Struct, frozen=True):
    """A topic or a group that other shards have."""

    kind: Literal["topic", "group"]
    name: str
    shard: str


class Search(Struct, frozen=True):
    """The answers of the store to the meanings of a text."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    messages: Sequence[MessageRow] = ()
    near: Sequence[MessageRow] = ()
    more: Sequence[More] = ()
    earlier_ms: int | None = None
    later_ms: int | None = None
    looked_topic_count: int = 0
    topic_count: int = 0
    older: str = ""
    is_near_cut: bool = False
    behind: int = NOWHERE
    after: str = ""
    next_after: str = ""
    unknown_topic: str = ""
    """The topic that was to be searched, if there is none of this name."""
    has_waiting: bool = False
    """Delayed messages and open transactions were searched, too."""


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
    """Messages with this key or id, in all topics and among waiting messages, oldest first.

    Of a topic in `more` they are the newest."""
    is_cut: bool = False
    """There are more messages with this key than shown."""
    more: tuple[More, ...] = ()
    """Topics with more messages of this key than shown."""
    older: str = ""
    """This part begins behind the messages that were shown before: it has older messages of the topic."""
    moment_ms: int | None = None
    is_ahead: bool = False
    """The moment is still to come."""
    others: tuple[Other, ...] = ()
    """Texts that may be meant instead."""
    near: tuple[MessageRow, ...] = ()
    """Messages of the minute that begins at `moment_ms`."""
    earlier_ms: int | None = None
    """The time of the last message before a minute without messages, in the topics of this part, if it is known."""
    later_ms: int | None = None
    """The time of the first message behind such a minute, if it is known."""
    looked_topic_count: int = 0
    """Topics that are searched, also in the parts before."""
    topic_count: int = 0
    """Topics to search."""
    after: str = ""
    """This part begins behind the topic of this name."""
    next_after: str = ""
    """`after` of the next part; empty if all topics are searched."""
    part_text: str = ""
    """The text that finds the same in the next part: a distance from now is then a moment."""
    next_moment: str = ""
    """The text that finds the next messages in time, behind `next_behind`; empty if all of the minute are shown."""
    next_behind: int = NOWHERE
    """The place in the log of the last message that is shown."""
    behind: int = NOWHERE
    """The messages up to this place in the log were shown before."""
    names: tuple[NameAt, ...] = ()
    """Topics and groups that only other shards have."""
    shards: tuple[FoundAt, ...] = ()
    """The results at each shard; none for a store without shards."""

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
    zone = zone_of(zone_name)
    moment_ms, time_refusal = _moment_ms(text, zone, now)
    return Wanted(
        text,
        key=text if is_word else "",
        offset_id=text.upper() if OFFSET_ID.fullmatch(text) else "",
        name=text if NAME.fullmatch(text) else "",
        moment_ms=moment_ms,
        time_refusal=time_refusal if not is_word or LIKE_A_TIME.search(text) else "",
        is_ahead=moment_ms is not None and moment_ms > now.timestamp() * 1_000,
        others=others(text, moment_ms, round(now.timestamp() * 1_000), lambda one: _moment_ms(one, zone, now)[0]),
    )


def zone_of(name: str) -> tzinfo:
    """Return the zone of this name, UTC if there is none."""
    try:
        return ZoneInfo(name) if re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", name) else UTC
    except (ValueError, KeyError, OSError):
        return UTC


def _moment_ms(text: str, zone: tzinfo, now: datetime) -> tuple[int | None, str]:
    """Return the moment that a text means, or None with the reason. Numbers of less than 13 digits are keys."""
    if re.fullmatch(r"-?[0-9]{1,11}", text):
        return None, ""
    try:
        moment_ms = parse_time(text, now=now, zone=zone)
    except NotAMoment as error:
        return None, str(error)
    return (moment_ms, "") if 0 <= moment_ms <= LAST_MS else (None, f"{text!r} is outside of the years 1970 to 9999")


def matching(names: Iterable[str], part: str) -> list[str]:
    """Return the names that have this part, the whole name first, then names that begin with it."""
    part = part.lower()
    found = [name for name in names if part in name.lower()]
    return sorted(found, key=lambda name: (name.lower() != part, not name.lower().startswith(part), name))


def shown_in(
    topics: Sequence[str], found: Iterable[tuple[Sequence[MessageRow], str]], count: int
) -> tuple[list[MessageRow], list[More]]:
    """Return the messages of the first topics that have room, and the topics that go on.

    Of a topic all messages that were found are shown, or none, so that its next part begins right behind them.
    """
    rows, more = list[MessageRow](), list[More]()
    for topic, (own, token) in zip(topics, found, strict=False):
        has_room = len(rows) + len(own) <= count
        rows += own if has_room else ()
        if token or not has_room:
            more.append(More(topic, token if has_room else ""))
    return rows, more


def first_in_time(answers: Iterable[tuple[Sequence[MessageRow], bool]], count: int) -> tuple[list[MessageRow], bool]:
    """Return the first messages of several queues in time, as they stand in the log, and whether there are more.

    Each answer is the begin of a queue, and whether the queue has more. Behind the end of such a begin the order is not
    known, so nothing is shown from there on.
    """
    rows, ends = list[MessageRow](), list[tuple[int, int]]()
    for messages, has_more in answers:
        rows += messages
        if has_more:
            ends.append(_place(messages[-1]))
    shown = sorted((row for row in rows if not ends or _place(row) <= min(ends)), key=_place)
    return shown[:count], bool(ends) or len(shown) > count


def _place(row: MessageRow) -> tuple[int, int]:
    """Return the place of a message in time, as it stands in the log."""
    return row.store_time_ms, row.physical_offset


def page_of(wanted: Wanted, topic: str, search: Search, gaps: tuple[object, ...]) -> FindPage:
    """Return the page of a search."""
    messages = tuple(sorted({row.id: row for row in search.messages}.values(), key=_place))
    outcome = _outcome(wanted, search, is_partial=bool(gaps))
    return FindPage(
        commands=_commands(wanted, topic, messages),
        gaps=gaps,  # type: ignore[arg-type]
        text=wanted.text,
        topic=topic,
        outcome=outcome,
        verdict=_verdict(outcome, wanted, messages, search),
        topics=tuple(search.topics[:NAMES_SHOWN_MAX]),
        groups=tuple(search.groups[:NAMES_SHOWN_MAX]),
        messages=messages,
        is_cut=bool(search.more),
        more=tuple(search.more),
        older=search.older,
        moment_ms=wanted.moment_ms,
        is_ahead=wanted.is_ahead,
        others=wanted.others,
        earlier_ms=search.earlier_ms,
        later_ms=search.later_ms,
        near=tuple(search.near),
        looked_topic_count=search.looked_topic_count,
        topic_count=search.topic_count,
        after=search.after,
        next_after=search.next_after,
        part_text=wanted.text if wanted.moment_ms is None else time_text(wanted.moment_ms),
        next_moment=time_text(search.near[-1].store_time_ms) if search.is_near_cut and search.near else "",
        next_behind=search.near[-1].physical_offset if search.is_near_cut and search.near else NOWHERE,
        behind=search.behind,
    )


def _outcome(wanted: Wanted, search: Search, *, is_partial: bool) -> Outcome:
    if not wanted.text:
        return "start"
    if search.messages or search.topics or search.groups or search.near:
        return "found"
    if is_partial:
        return "could_not_look"
    return "in_parts" if search.next_after else "not_found"


def _verdict(outcome: Outcome, wanted: Wanted, messages: Sequence[MessageRow], search: Search) -> str:
    match outcome:
        case "start":
            return ""
        case "not_found":
            return _not_found(wanted, search)
        case "could_not_look":
            return "Could not look everywhere: it may be there."
        case "in_parts":
            return f"Not found so far: {_searched(search)}."
    if messages:
        places = len({row.topic for row in messages})
        if search.older:
            left = "there are more" if search.more else "the key has no others in this topic"
            return f"{many(len(messages), 'older message')} in {messages[0].topic}; {left}."
        having = f"{many(len(search.more), 'topic')} {verb(len(search.more), 'has', 'have')} more"
        more = f", the newest of each topic; {having}" if search.more else ""
        waiting = sum(row.waits_as != "" for row in messages)
        and_waiting = f", {waiting:,} of them not delivered yet" if waiting else ""
        return f"{many(len(messages), 'message')} in {many(places, 'topic')}{and_waiting}{more}; {_searched(search)}."
    if search.near:
        count = many(len(search.near), "message")
        which = "The next" if search.behind != NOWHERE else "The first"
        shown = f"{which} {count} from this time on; there are more" if search.is_near_cut else count
        left = f"; {_searched(search)}" if search.next_after else ""
        return f"{shown}{'' if search.is_near_cut else ' of this minute'}{left}."
    if search.unknown_topic:
        return f"There is no topic {search.unknown_topic}; topics with this text are listed."
    return f"{many(len(search.topics) + len(search.groups), 'name')} with this text."


def _not_found(wanted: Wanted, search: Search) -> str:
    if search.unknown_topic:
        return f"Not found: there is no topic {search.unknown_topic}."
    if search.older:
        return "Not found: the topic has no older message with this key."
    if search.behind != NOWHERE:
        return "No further message in this minute."
    if not wanted.key and wanted.moment_ms is None:
        return f"Not understood: keys, ids and names have no spaces, and {wanted.time_refusal}."
    where = many(search.looked_topic_count, "topic")
    if wanted.moment_ms is not None and not wanted.key:
        ahead = " It lies ahead." if wanted.is_ahead else ""
        return f"Understood as a time: no message of {where} in the minute from {time_text(wanted.moment_ms)}.{ahead}"
    waiting = ", no delayed message and no open transaction" if search.has_waiting else ""
    return f"Not found: no name, and no message in {where}{waiting}.{''.join(_hints(wanted))}"


def _hints(wanted: Wanted) -> Iterator[str]:
    """Yield other meanings of a text that was not found as a key."""
    if wanted.time_refusal:
        yield f" As a time it is not understood: {wanted.time_refusal}."
    if wanted.moment_ms is not None:
        yield (
            " As a time it lies ahead." if wanted.is_ahead else " As a time it is understood: no message in its minute."
        )
    if SECONDS.fullmatch(wanted.text):
        yield " It may be seconds since the epoch."
    if LIKE_AN_ID.fullmatch(wanted.text) and not wanted.offset_id:
        yield f" Ids have 32 or 56 digits, this text has {len(wanted.text)}."


def _searched(search: Search) -> str:
    """Return how many topics were searched, and how many are left."""
    if not search.next_after:
        return f"{many(search.looked_topic_count, 'topic')} searched"
    left = search.topic_count - search.looked_topic_count
    return f"{search.looked_topic_count:,} of {many(search.topic_count, 'topic')} searched, {left:,} are left"


def _commands(wanted: Wanted, topic: str, messages: Sequence[MessageRow]) -> tuple[str, ...]:
    """Return the commands that find the same: the command line searches a topic at a time."""
    found = []
    if wanted.offset_id:
        found.append(command("query", "id", wanted.offset_id))
    names = list(dict.fromkeys(row.topic for row in messages)) or ([topic] if topic else ["TOPIC"])
    if wanted.key and (messages or wanted.moment_ms is None):
        found += [command("query", "key", name, wanted.key) for name in names[:3]]
    if any(row.waits_as == "delayed" for row in messages):
        found.append(command("delay", "list", f"--key={wanted.key}"))
    if any(row.waits_as == "transaction" for row in messages):
        found.append(command("tx", "list"))
    if wanted.moment_ms is not None:
        start, end = time_text(wanted.moment_ms), time_text(wanted.moment_ms + MINUTE_MS)
        found.append(command("query", "time", topic or "TOPIC", "--start", start, "--end", end))
    return tuple(found) if wanted.text else (command("topics", "list"), command("groups", "list"))
