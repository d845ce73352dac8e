# SPDX-License-Identifier: Apache-2.0
"""Tools about messages: by key, by time, by id, and the trail of a message."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from libs.moments import time_text
from services.console.ask import message as messages
from services.console.ask.find import TOPICS_LISTED_MAX, Part, in_time, part_of
from services.console.ask.groups import known_groups
from services.console.ask.keys import by_key
from services.console.ask.states import states_at
from services.console.ask.store import Asking, Store
from services.console.ask.waiting import waiting_by_key
from services.console.mcp.answers import Answer, Whole, fitting
from services.console.mcp.arguments import (
    ROWS_USUAL,
    AfterTopic,
    AnyTopic,
    Arguments,
    Behind,
    BodyStart,
    End,
    Form,
    Key,
    MessageId,
    Refused,
    Rows,
    Start,
    TokenOfKey,
    shown,
    span_ms,
)
from services.console.pages.body import HEX_LINE, Body
from services.console.pages.find import LAST_MS, NOWHERE, OFFSET_ID
from services.console.pages.message import MessagePage, states_of
from services.console.pages.rows import MessageRow

ROWS_OF_A_TOPIC_MAX = 20
"""Messages of a topic if the key is looked up in all topics."""
BODY_BYTES_MAX = 60_000
"""Bytes of a body in an answer, so that properties and states have room beside it."""
EXACT_PLACES_MAX = 20
"""Places of a trail whose exact states at the groups are asked for: a call for each group."""
ORIGINS = ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID")
TOPICS_NAMED_MAX = 5


class ByKey(Arguments, frozen=True):
    """The arguments of find_by_key."""

    key: Key
    topic: AnyTopic = ""
    after_topic: AfterTopic = ""
    start: Start = ""
    end: End = ""
    next_token: TokenOfKey = ""
    limit: Rows = ROWS_USUAL


class ByTime(Arguments, frozen=True):
    """The arguments of find_by_time."""

    start: Start
    end: End = ""
    topic: AnyTopic = ""
    limit: Rows = ROWS_USUAL
    behind: Behind = NOWHERE


class ById(Arguments, frozen=True):
    """The arguments of get_message."""

    id: MessageId
    topic: AnyTopic = ""
    form: Form = "best"
    body_start: BodyStart = 0


class Trail(Arguments, frozen=True):
    """The arguments of message_trail."""

    id: MessageId
    topic: AnyTopic = ""


async def find_by_key(store: Store, wanted: ByKey) -> Answer:
    """Find the messages with a key, also messages that wait for their time."""
    start_ms, end_ms = span_ms(wanted.start, wanted.end, store)
    if wanted.next_token and not wanted.topic:
        raise Refused("topic is missing: a next_token is of one topic")
    asking = Asking(store)
    part = await _part(asking, wanted.topic, after=wanted.after_topic, advice="go on with after_topic={}")
    count = wanted.limit if wanted.topic else min(wanted.limit, ROWS_OF_A_TOPIC_MAX)
    found = await by_key(
        asking, wanted.key, part.topics, start_ms=start_ms, end_ms=end_ms, count=count, token=wanted.next_token
    )
    rows = _in_order([row for one, _ in found for row in one])
    is_whole = start_ms is end_ms is None and not wanted.after_topic and not wanted.next_token
    waits = await _waiting(asking, wanted.key, wanted.topic) if is_whole else ()
    answer = Answer(
        {"messages": rows[: wanted.limit], "waiting": waits, "searched_topic_count": part.searched_count},
        is_found=bool(rows or waits),
        gaps=asking.gaps,
    )
    if len(rows) > wanted.limit:
        answer.left_off(f"{len(rows) - wanted.limit} newer messages: give topic, start, or a larger limit")
    more = [(topic, one.next_token) for topic, one in zip(part.topics, found, strict=False) if one.next_token]
    bounds = "".join(f", {name}={text}" for name, text in _bounds(start_ms, end_ms))
    for topic, token in more[:TOPICS_NAMED_MAX]:
        answer.left_off(f"older messages of {topic}: topic={topic}{bounds}, next_token={token}")
    if len(more) > TOPICS_NAMED_MAX:
        answer.left_off(f"older messages of {len(more) - TOPICS_NAMED_MAX} more topics: give topic")
    answer.rest_by("messages", "give topic, start, or a smaller limit")
    return answer


async def find_by_time(store: Store, wanted: ByTime) -> Answer:
    """Find the first messages of a span of time, over all queues."""
    start_ms, end_ms = span_ms(wanted.start, wanted.end, store)
    if start_ms is None:
        raise Refused(f"start is {shown(wanted.start)}: a time is needed")
    asking = Asking(store)
    names = [wanted.topic] if wanted.topic else await _names(asking)
    rows, is_cut = await in_time(
        asking, names, start_ms, LAST_MS if end_ms is None else end_ms, count=wanted.limit, behind=wanted.behind
    )
    answer = Answer(
        {"messages": rows, "topic_count": len(names)}, is_found=bool(rows), gaps=asking.gaps
    )  # fmt: skip
    if is_cut and rows:
        last = rows[-1]
        answer.left_off(f"later messages: start={time_text(last.store_time_ms)}, behind={last.physical_offset}")
    answer.rest_by("messages", "give a smaller limit, then go on by start and behind")
    return answer


async def get_message(store: Store, wanted: ById) -> Answer:
    """Return a message with its properties, its body, and its state at each group."""
    asking = Asking(store)
    offset_id = await _offset_id(asking, wanted.id, wanted.topic)
    if not offset_id:
        return Answer({"id": wanted.id}, is_found=False, gaps=asking.gaps)
    form = "" if wanted.form == "best" else wanted.form
    page = await messages.message(store, offset_id, "", form, body_start=wanted.body_start)
    return _told(page, asking)


def _told(page: MessagePage, asking: Asking) -> Answer:
    values = {
        name: getattr(page, name)
        for name in page.__struct_fields__
        if name not in ("gaps", "is_found", "calls", "body", "row")
    }
    values |= {"message": replace(page.row, preview="")} if page.row is not None else {}
    body, end = _body(page.body) if page.body is not None else ({}, None)
    answer = Answer({**values, "body": body}, is_found=page.is_found, gaps=(*asking.gaps, *page.gaps))
    if end is not None and page.body is not None:
        unit = "bytes" if page.body.form == "hex" else "characters"
        answer.left_off(f"the body from {end:,} of {page.body.length:,} {unit} on: body_start={end}")
    if page.property_count > len(page.properties):
        answer.left_off(f"{page.property_count - len(page.properties)} properties: `{page.commands[0]}` prints all")
    answer.rest_by("properties", f"`{page.commands[0]}` prints all")
    return answer


def _body(body: Body) -> tuple[dict[str, Any], int | None]:
    """Return a body that fits, and where the rest begins if there is more."""
    text = fitting(body.shown, BODY_BYTES_MAX)
    end = body.start + (len(text.splitlines()) * HEX_LINE if body.form == "hex" else len(text))
    values = {name: getattr(body, name) for name in body.__struct_fields__ if name not in ("shown", "is_cut", "length")}
    return {**values, "text": Whole(text)}, end if end < body.length and not body.is_hidden else None


async def message_trail(store: Store, wanted: Trail) -> Answer:
    """Return all places of a message, in time, each with its state at the groups."""
    asking = Asking(store)
    offset_id = await _offset_id(asking, wanted.id, wanted.topic)
    if not offset_id:
        waits = await _waiting(asking, wanted.id, wanted.topic)
        return Answer(
            {"id": wanted.id, "waiting": waits}, is_found=bool(waits), gaps=asking.gaps
        )  # fmt: skip
    page = await messages.message(store, offset_id, "", "")
    if page.row is None:
        return Answer({"id": offset_id}, is_found=False, gaps=(*asking.gaps, *page.gaps))
    ids = [one.value for one in page.properties if one.name in ORIGINS and not store.mask.covers(one.name)]
    rows, waits = [page.row], list[MessageRow]()
    part = await _part(asking, "")
    for unique_id in dict.fromkeys(one for one in (page.row.unique_id, *ids) if one):
        rows += [row for found, _ in await by_key(asking, unique_id, part.topics) for row in found]
        waits += await _waiting(asking, unique_id, "")
    facts = (await known_groups(asking)).facts()
    ordered = _in_order(rows)
    states = [await states_at(asking, row, facts) for row in ordered[:EXACT_PLACES_MAX]]
    states += [states_of(row.topic, row.queue_id, row.queue_offset, facts) for row in ordered[EXACT_PLACES_MAX:]]
    places = [{"message": row, "states": found} for row, found in zip(ordered, states, strict=True)]
    answer = Answer(
        {
            "id": offset_id,
            "waits_as": page.waits_as,
            "real_topic": page.real_topic,
            "reconsume_times": page.reconsume_times,
            "places": places,
            "waiting": waits,
            "searched_topic_count": part.searched_count,
        },
        is_found=True,
        gaps=(*asking.gaps, *page.gaps),
    )
    answer.rest_by("places", "find_by_key with this unique id and a topic")
    return answer


async def _names(asking: Asking) -> list[str]:
    """Return all topics by name."""
    listed, is_cut = await asking.first("topics", asking.client.topics.list(), TOPICS_LISTED_MAX)
    if is_cut:
        asking.left_out("further topics", f"the first {TOPICS_LISTED_MAX:,} are searched: give the topic")
    return sorted(one.name for one in listed)


async def _part(asking: Asking, topic: str, *, after: str = "", advice: str = "give the topic") -> Part:
    """Return the topics to search. Topics that are left are a gap with the advice."""
    if topic:
        return Part([topic], [topic])
    part = await part_of(asking, await _names(asking), after)
    if part.next_after:
        left = len(part.names) - part.searched_count
        asking.left_out(f"{left} topics behind {part.next_after}", advice.format(part.next_after))
    return part


async def _offset_id(asking: Asking, message_id: str, topic: str) -> str:
    """Return the offset message id of a message, "" if it is not found."""
    if topic or OFFSET_ID.fullmatch(message_id):
        by_id = asking.client.query.by_id(message_id, topic=topic)
        message, _ = await asking.ask_by("the message", by_id)  # a unique id needs a topic
        if message is not None or topic:
            return message.offset_message_id if message is not None else ""
    found = await by_key(asking, message_id, (await _part(asking, "")).topics)
    rows = [row for one, _ in found for row in one if row.unique_id.upper() == message_id.upper()]
    return _in_order(rows)[0].id if rows else ""


async def _waiting(asking: Asking, key: str, topic: str) -> Sequence[MessageRow]:
    """Return the messages with this key that wait for their time, or for the end of their transaction."""
    if asking.store.mask.refusal(key=key):
        return ()
    return (await waiting_by_key(asking, key, topic, ROWS_USUAL)).rows


def _bounds(start_ms: int | None, end_ms: int | None) -> list[tuple[str, str]]:
    """Return the bounds of a search as exact times: a next_token is bound to them, and a distance from now moves."""
    return [(name, time_text(at)) for name, at in (("start", start_ms), ("end", end_ms)) if at is not None]


def _in_order(rows: Sequence[MessageRow]) -> list[MessageRow]:
    """Return each message once, the oldest first."""
    return sorted({row.id: row for row in rows}.values(), key=lambda row: (row.store_time_ms, row.topic, row.queue_id))
