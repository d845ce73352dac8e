# SPDX-License-Identifier: Apache-2.0
"""What the pages about dead letters ask: Delivery has them."""

from reput_client import DeadLetter, InvalidArgumentError, NotFoundError, ReputError

from services.console.ask.groups import known_groups
from services.console.ask.store import Asking, Store
from services.console.pages.letters import (
    LETTERS_SHOWN_MAX,
    GroupLettersPage,
    LettersPage,
    group_letters_page,
    letters_page,
)

WHERE_CHARACTERS_MAX = 2_000


async def letters(store: Store) -> LettersPage:
    """Return the page of the groups with dead letters."""
    asking = Asking(store)
    known = await known_groups(asking)
    return letters_page(known.facts(), asking.gaps)


async def group_letters(store: Store, name: str, where: str) -> GroupLettersPage:
    """Return the page of a group's dead letters that fulfil a condition."""
    asking, where = Asking(store), where.strip()[:WHERE_CHARACTERS_MAX]
    if not store.has_delivery:
        return group_letters_page(name, None, (), where=where)
    found: list[DeadLetter] = []
    refusal, is_cut = "", False
    listed = asking.client.dead_letters.list(name, where=where, page_size=LETTERS_SHOWN_MAX)
    try:
        async for letter in listed:
            if len(found) == LETTERS_SHOWN_MAX:
                is_cut = True
                break
            found.append(letter)
    except NotFoundError:
        return group_letters_page(name, None, asking.gaps, where=where)
    except InvalidArgumentError as error:
        refusal = error.text
    except ReputError as error:
        asking.tell(f"the dead letters of {name}", error)
        if not found:
            return group_letters_page(name, None, asking.gaps, where=where)
    return group_letters_page(
        name, found, asking.gaps, where=where, refusal=refusal, is_cut=is_cut, hides_bodies=store.hides_bodies
    )
