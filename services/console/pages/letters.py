# SPDX-License-Identifier: Apache-2.0
"""Dead letters: the groups that have some, and the letters of a group."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct
from reput_client import DeadLetter

from services.console.pages.groups import GroupFacts
from services.console.pages.mask import Mask
from services.console.pages.page import Gap, Page, command
from services.console.pages.rows import MessageRow, row_of

LETTERS_SHOWN_MAX = 100
HOUR_MS = 3_600_000
AGES_MS: Mapping[str, tuple[int | None, int]] = {
    "hour": (HOUR_MS, 0),
    "day": (24 * HOUR_MS, HOUR_MS),
    "week": (7 * 24 * HOUR_MS, 24 * HOUR_MS),
    "older": (None, 7 * 24 * HOUR_MS),
}
"""Ages of letters: at most, and more than. They do not overlap."""
ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"


class LettersOfGroup(Struct, frozen=True):
    """A group with dead letters."""

    name: str
    dead_letter_count: int
    attempts_max: int


class LettersPage(Page, frozen=True, kw_only=True):
    """The groups with dead letters."""

    template: ClassVar = "letters.html"

    groups: tuple[LettersOfGroup, ...]
    group_count: int
    """All groups that were asked, with dead letters or without."""


class LetterRow(Struct, frozen=True):
    """A dead letter. Values that it does not carry are None or empty."""

    row: MessageRow
    """The message as it is stored among the dead letters; its store time is the time of its death."""
    origin_topic: str
    origin_queue_id: int | None
    origin_queue_offset: int | None
    origin_message_id: str
    attempt_count: int


class Death(Struct, frozen=True):
    """The facts by which the causes of letters are counted."""

    origin_topic: str
    attempt_count: int
    time_ms: int


class Cause(Struct, frozen=True):
    """Letters of a topic that died for the same reason."""

    origin_topic: str
    reason: str
    letter_count: int
    ages: dict[str, int]
    """Letters by age: a key of AGES_MS."""
    oldest_ms: int
    newest_ms: int
    where: str
    """The condition that selects the letters of the topic."""


class GroupLettersPage(Page, frozen=True, kw_only=True):
    """The dead letters of a group."""

    template: ClassVar = "group_letters.html"

    name: str
    where: str
    """The condition of properties that the letters fulfil."""
    refusal: str = ""
    """Why the condition can't be used."""
    age: str = ""
    """Only letters of this age: a key of AGES_MS."""
    causes: tuple[Cause, ...] = ()
    """The letters by topic and reason, most first."""
    counted_count: int = 0
    """Letters that were counted for the causes."""
    is_counted_in_part: bool = False
    rows: tuple[LetterRow, ...] = ()
    is_cut: bool = False
    """There are more letters than shown."""


def letters_page(groups: Sequence[GroupFacts], gaps: tuple[Gap, ...]) -> LettersPage:
    """Return the page of the groups with dead letters, the most letters first."""
    shared = [group.share for group in groups if group.share is not None]
    rows = [
        LettersOfGroup(share.name, share.dead_letter_count, share.policy.attempts_max)
        for share in shared
        if share.dead_letter_count
    ]
    rows.sort(key=lambda row: (-row.dead_letter_count, row.name))
    return LettersPage(
        commands=(command("groups", "show", "GROUP"), command("dlq", "list", "GROUP")),
        gaps=gaps,
        groups=tuple(rows),
        group_count=len(shared),
    )


def span_of(age: str, now_ms: int) -> tuple[int | None, int | None]:
    """Return the times between which letters of an age died, without bounds for an unknown age."""
    if age not in AGES_MS:
        return None, None
    most_ms, least_ms = AGES_MS[age]
    return None if most_ms is None else now_ms - most_ms, now_ms - least_ms if least_ms else None


def causes_of(deaths: Iterable[Death], attempts_max: int | None, now_ms: int) -> tuple[Cause, ...]:
    """Return letters by topic and reason, most first. The store has no reasons: they follow from the attempts."""
    found: dict[tuple[str, str], list[Death]] = {}
    for death in deaths:
        found.setdefault((death.origin_topic, _reason(death.attempt_count, attempts_max)), []).append(death)
    causes = [
        Cause(
            origin_topic=topic,
            reason=reason,
            letter_count=len(some),
            ages={age: sum(_has_age(death, age, now_ms) for death in some) for age in AGES_MS},
            oldest_ms=min(death.time_ms for death in some),
            newest_ms=max(death.time_ms for death in some),
            where=_where(topic),
        )
        for (topic, reason), some in found.items()
    ]
    return tuple(sorted(causes, key=lambda cause: (-cause.letter_count, cause.origin_topic, cause.reason)))


def _where(topic: str) -> str:
    """Return the condition of letters from a topic. Producers may write any text into a property."""
    return "{} = '{}'".format(ORIGIN_TOPIC, topic.replace("'", "''")) if topic else f"{ORIGIN_TOPIC} IS NULL"


def _reason(attempt_count: int, attempts_max: int | None) -> str:
    if attempts_max is None or not attempt_count:
        return "not known"
    if attempt_count >= attempts_max:
        return "all attempts failed"
    return "given up before the last attempt"


def _has_age(death: Death, age: str, now_ms: int) -> bool:
    start_ms, end_ms = span_of(age, now_ms)
    return (start_ms is None or death.time_ms >= start_ms) and (end_ms is None or death.time_ms < end_ms)


def letter_row(letter: DeadLetter, mask: Mask) -> LetterRow:
    """Return a dead letter as a row."""
    return LetterRow(
        row_of(letter.message, mask),
        letter.origin_topic,
        letter.origin_queue_id,
        letter.origin_queue_offset,
        letter.origin_message_id,
        letter.attempt_count,
    )


def group_letters_page(
    name: str,
    rows: Sequence[LetterRow] | None,
    gaps: tuple[Gap, ...],
    *,
    where: str,
    age: str = "",
    refusal: str = "",
    causes: tuple[Cause, ...] = (),
    is_counted_in_part: bool = False,
    is_cut: bool = False,
) -> GroupLettersPage:
    """Return the page of a group's dead letters, the newest first. `rows` is None if there is no such group."""
    condition = ("--where", where) if where else ()
    return GroupLettersPage(
        commands=(command("dlq", "list", name, *condition), command("dlq", "replay", name, *condition, "--dry-run")),
        gaps=gaps,
        is_found=rows is not None,
        name=name,
        where=where,
        age=age if age in AGES_MS else "",
        refusal=refusal,
        causes=causes,
        counted_count=sum(cause.letter_count for cause in causes),
        is_counted_in_part=is_counted_in_part,
        rows=tuple(sorted(rows or (), key=lambda one: -one.row.store_time_ms)),
        is_cut=is_cut,
    )
