# SPDX-License-Identifier: Apache-2.0
"""Found: the results of a search at several shards as one page, which names the shard of each message."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, Literal

from msgspec.structs import replace

from services.console.pages.find import NAMES_SHOWN_MAX, FindPage, FoundAt, More, NameAt, Outcome
from services.console.pages.page import Gap
from services.console.pages.rows import MessageRow

PAGE_BYTES, ROW_BYTES, LINKS_OF_A_ROW, PREFIX_BYTES = 88_000, 950, 8, 8
"""Bytes of the rows of a page, of a long row without the name of its shard, and of each link in front of the name."""
NOT_ASKED: Final = "Not asked: times, and the next parts of a list, are looked up at the shard of the page."
TOO_MANY: Final = "Not asked: the page asks the first shards of the file, and its own."


def rows_max(shard: str) -> int:
    """Return how many messages a page below a shard shows: its name is in each link."""
    return PAGE_BYTES // (ROW_BYTES + LINKS_OF_A_ROW * (PREFIX_BYTES + len(shard)))


def over_shards(own: FindPage, shard: str, others: Mapping[str, FindPage], shards: Sequence[str]) -> FindPage:
    """Return the page of a shard with the messages and names of the others that were asked."""
    pages = {shard: own, **others}
    rows, more = _shown(pages, rows_max(max(shards, key=len)))
    asked = [(name, pages[name]) for name in shards if name in pages]
    left = TOO_MANY if others else NOT_ASKED
    outcome = _outcome([page.outcome for _, page in asked])
    return replace(
        own,
        outcome=outcome,
        verdict=_verdict(outcome, asked) if others else own.verdict,
        messages=rows,
        more=more,
        is_cut=bool(more),
        names=tuple(_names(own, others))[:NAMES_SHOWN_MAX],
        gaps=tuple(Gap(f"{gap.subject} at shard {name}", gap.reason) for name, page in asked for gap in page.gaps),
        shards=tuple(
            FoundAt(name, pages[name].outcome, pages[name].verdict) if name in pages else FoundAt(name, "", left)
            for name in shards
        ),
    )


def _shown(pages: Mapping[str, FindPage], count: int) -> tuple[tuple[MessageRow, ...], tuple[More, ...]]:
    """Return the messages that have room, and the topics that go on. Of a topic all messages are shown, or none."""
    rows, more = list[MessageRow](), list[More]()
    for shard, page in pages.items():
        by_topic = sorted(page.messages, key=lambda row: row.topic)
        goes_on = {one.topic: one.older for one in page.more}
        for topic, found in groupby(by_topic, key=lambda row: row.topic):
            own = [replace(row, shard=shard) for row in found]
            has_room = len(rows) + len(own) <= count
            rows += own if has_room else ()
            if not has_room:
                goes_on[topic] = ""
        more += [More(topic, older, shard) for topic, older in goes_on.items()]
    return tuple(sorted(rows, key=lambda row: (row.store_time_ms, row.shard, row.physical_offset))), tuple(more)


def _names(own: FindPage, others: Mapping[str, FindPage]) -> Iterable[NameAt]:
    """Yield the topics and groups that only other shards have, each at the first of them."""
    known = {(one.kind, one.name) for one in (*_named("topic", own.topics, ""), *_named("group", own.groups, ""))}
    for shard, page in others.items():
        for one in (*_named("topic", page.topics, shard), *_named("group", page.groups, shard)):
            if (one.kind, one.name) not in known:
                known.add((one.kind, one.name))
                yield one


def _named(kind: Literal["topic", "group"], names: Iterable[str], shard: str) -> list[NameAt]:
    return [NameAt(kind, name, shard) for name in names]


def _outcome(outcomes: Sequence[Outcome]) -> Outcome:
    order: tuple[Outcome, ...] = ("found", "could_not_look", "in_parts", "not_found", "start")
    return min(outcomes, key=order.index)


def _verdict(outcome: Outcome, asked: Sequence[tuple[str, FindPage]]) -> str:
    having = [name for name, page in asked if page.outcome == "found"]
    away = [name for name, page in asked if page.gaps]
    missing = f" Could not look everywhere at shard {', '.join(away)}: it may be there, too." if away else ""
    match outcome:
        case "found":
            return f"Found at shard {', '.join(having)}.{missing}"
        case "could_not_look":
            return f"Could not look everywhere at shard {', '.join(away)}: it may be there."
        case "in_parts":
            return "Not found so far: a shard has further topics."
    return f"Not found at shard {', '.join(name for name, _ in asked)}."
