# SPDX-License-Identifier: Apache-2.0
"""The questions of the pages about dead letters, to Delivery."""

from functools import partial

from msgspec import Struct, field
from reput_client import InvalidArgumentError, ReputError

from services.console.ask.groups import known_groups
from services.console.ask.store import Asking, Store, is_missing
from services.console.pages.letters import (
    LETTERS_SHOWN_MAX,
    Death,
    GroupLettersPage,
    LetterRow,
    LettersPage,
    causes_of,
    group_letters_page,
    letter_row,
    letters_page,
    span_of,
)

WHERE_CHARACTERS_MAX = 2_000
LETTERS_COUNTED_MAX = 1_000
"""Letters of a group that are read to count their causes."""
BYTES_READ_MAX = 16 << 20
"""Bodies of so many bytes end the count, too."""


class Found(Struct):
    """Letters that were read."""

    rows: list[LetterRow] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    is_in_part: bool = False


async def letters(store: Store) -> LettersPage:
    """Return the page of the groups with dead letters."""
    asking = Asking(store)
    known = await known_groups(asking)
    return letters_page(known.facts(), asking.gaps)


async def group_letters(store: Store, name: str, where: str, age: str) -> GroupLettersPage:
    """Return the page of a group's dead letters that fulfil a condition and have an age."""
    asking, where = Asking(store), where.strip()[:WHERE_CHARACTERS_MAX]
    page = partial(group_letters_page, name, where=where, age=age)
    if not store.has_delivery:
        return page(None, ())
    if refusal := store.mask.refusal(where=where):
        return page((), (), refusal=refusal)
    found, refusal, now_ms = Found(), "", store.clock.now_ms()
    try:
        await _read(asking, found, name, where, span_of(age, now_ms))
    except ReputError as error:
        if is_missing(error):
            return page(None, asking.gaps)
        if isinstance(error, InvalidArgumentError):
            refusal = error.text
        else:
            asking.tell(f"the dead letters of {name}", error)
            if not found.rows:
                return page(None, asking.gaps)
    group = await asking.ask("the attempts of the group", asking.client.share_groups.get(name))
    if group is None and not (found.deaths or refusal or asking.gaps):
        return page(None, ())
    return page(
        found.rows,
        asking.gaps,
        refusal=refusal,
        causes=causes_of(found.deaths, group.policy.attempts_max if group is not None else None, now_ms),
        is_counted_in_part=found.is_in_part,
        is_cut=len(found.deaths) > len(found.rows) or found.is_in_part,
    )


async def _read(asking: Asking, found: Found, name: str, where: str, span: tuple[int | None, int | None]) -> None:
    """Read letters for the rows and for the causes. Only bodies of rows are kept, as previews."""
    start, end = span
    size_bytes = 0
    listed = asking.client.dead_letters.list(name, where=where, start=start, end=end, page_size=LETTERS_SHOWN_MAX)
    async for letter in listed:
        if len(found.deaths) == LETTERS_COUNTED_MAX or size_bytes > BYTES_READ_MAX:
            found.is_in_part = True
            return
        size_bytes += len(letter.message.raw_body)
        found.deaths.append(Death(letter.origin_topic, letter.attempt_count, letter.message.store_time_ms))
        if len(found.rows) < LETTERS_SHOWN_MAX:
            found.rows.append(letter_row(letter, asking.store.mask))
