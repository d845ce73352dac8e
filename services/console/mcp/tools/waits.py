# SPDX-License-Identifier: Apache-2.0
"""Tools about messages that no group gets now: dead letters, messages that wait for their time, open transactions."""

from services.console.ask import letters, waiting
from services.console.ask.store import Store
from services.console.mcp.answers import Answer
from services.console.mcp.arguments import AnyTopic, Arguments, GroupName, Refused, Token
from services.console.pages.waiting import DelayedQuestion


class OfLetters(Arguments, frozen=True):
    """The arguments of dead_letters."""

    group: GroupName


class OfDelayed(Arguments, frozen=True):
    """The arguments of list_delayed."""

    topic: AnyTopic = ""
    next_token: Token = ""


class OfTransactions(Arguments, frozen=True):
    """The arguments of list_transactions."""

    next_token: Token = ""


async def dead_letters(store: Store, wanted: OfLetters) -> Answer:
    """Return the newest dead letters of a group, and the counts of their reasons."""
    page = await letters.group_letters(store, wanted.group, "", "")
    values = {"group": page.name, "causes": page.causes, "counted_count": page.counted_count, "letters": page.rows}
    answer = Answer({**values, "commands": page.commands}, is_found=bool(page.rows), gaps=page.gaps)
    if page.is_cut or page.is_counted_in_part:
        answer.left_off(f"further letters: find_by_time with topic=%DLQ%{page.name}")
    answer.rest_by("letters", f"find_by_time with topic=%DLQ%{page.name}")
    return answer


async def list_delayed(store: Store, wanted: OfDelayed) -> Answer:
    """Return messages that wait for their time."""
    page = await waiting.delayed(store, DelayedQuestion(topic=wanted.topic, after=wanted.next_token), "UTC")
    return _part(page.rows, page.next_token, page.refusal, page.gaps, levels=page.levels)


async def list_transactions(store: Store, wanted: OfTransactions) -> Answer:
    """Return open transactions, the oldest first."""
    page = await waiting.transactions(store, "", wanted.next_token)
    return _part(page.rows, page.next_token, page.refusal, page.gaps)


def _part(rows: object, next_token: str, refusal: str, gaps: object, **values: object) -> Answer:
    """Return a part of a list. Raises Refused for a token that the store did not give."""
    if refusal:
        raise Refused(refusal)
    answer = Answer({"rows": rows, "next_token": next_token, **values}, is_found=bool(rows), gaps=gaps)  # type: ignore[arg-type]
    if next_token:
        answer.left_off("the next part: give next_token")
    return answer
