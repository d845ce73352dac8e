# SPDX-License-Identifier: Apache-2.0
"""Dead letters: the groups that have some, and the letters of a group."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from reput_client import DeadLetter

from services.console.pages.groups import GroupFacts
from services.console.pages.page import Gap, Page, command
from services.console.pages.rows import MessageRow, row_of

LETTERS_SHOWN_MAX = 100


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
    """The message as it is stored among the dead letters; its store time is the time when it became one."""
    origin_topic: str
    origin_queue_id: int | None
    origin_queue_offset: int | None
    origin_message_id: str
    attempt_count: int


class GroupLettersPage(Page, frozen=True, kw_only=True):
    """The dead letters of a group."""

    template: ClassVar = "group_letters.html"

    name: str
    where: str
    """The condition of properties that the letters fulfil."""
    refusal: str = ""
    """Why the condition can't be used."""
    rows: tuple[LetterRow, ...] = ()
    is_cut: bool = False
    """There are more letters than shown."""


def letters_page(groups: Sequence[GroupFacts], gaps: tuple[Gap, ...]) -> LettersPage:
    """Return the page of the groups with dead letters, those with most first."""
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


def group_letters_page(
    name: str,
    letters: Sequence[DeadLetter] | None,
    gaps: tuple[Gap, ...],
    *,
    where: str,
    refusal: str = "",
    is_cut: bool = False,
    hides_bodies: bool = False,
) -> GroupLettersPage:
    """Return the page of a group's dead letters, the newest first. `letters` is None if there is no such group."""
    condition = ("--where", where) if where else ()
    return GroupLettersPage(
        commands=(command("dlq", "list", name, *condition), command("dlq", "replay", name, *condition, "--dry-run")),
        gaps=gaps,
        is_found=letters is not None,
        name=name,
        where=where,
        refusal=refusal,
        rows=tuple(
            LetterRow(
                row_of(letter.message, hides_bodies=hides_bodies),
                letter.origin_topic,
                letter.origin_queue_id,
                letter.origin_queue_offset,
                letter.origin_message_id,
                letter.attempt_count,
            )
            for letter in sorted(letters or (), key=lambda letter: -letter.message.store_time_ms)
        ),
        is_cut=is_cut,
    )
