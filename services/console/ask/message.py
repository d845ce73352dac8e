# SPDX-License-Identifier: Apache-2.0
"""The questions of the page of a message: the message, and the groups with a position in its queue."""

import asyncio

from reput_client import BodyError, Message

from services.console.ask.groups import known_groups
from services.console.ask.states import states_at
from services.console.ask.store import Asking, Store
from services.console.pages.body import INFLATED_BYTES_MAX
from services.console.pages.message import MessagePage, page_of
from services.console.pages.rows import row_of
from services.console.pages.states import GroupState


async def message(store: Store, message_id: str, topic: str, form: str, *, body_start: int = 0) -> MessagePage:
    """Return the page of a message, by its offset message id, or by its unique id in a topic."""
    asking = Asking(store)
    found, refusal = await asking.ask_by("the message", asking.client.query.by_id(message_id, topic=topic))
    states: tuple[GroupState, ...] = ()
    if found is not None:
        states = await states_at(asking, row_of(found, store.mask), (await known_groups(asking)).facts())
    return await asyncio.to_thread(
        page_of,
        message_id,
        found,
        states,
        asking.gaps,
        indexer_target=store.targets["indexer"],
        form=form,
        mask=store.mask,
        body_start=body_start,
        refusal=refusal,
    )


async def body(store: Store, message_id: str, topic: str) -> tuple[bytes | None, bool]:
    """Return the body of a message to save it, None if there is no body, and whether the store could be asked."""
    asking = Asking(store)
    found, _ = await asking.ask_by("the message", asking.client.query.by_id(message_id, topic=topic))
    if found is None or store.mask.hides_bodies or store.mask.names:
        return None, not asking.gaps
    return await asyncio.to_thread(_whole, found), True


def _whole(message: Message) -> bytes:
    """Return the inflated body, or the bytes as they are stored if they can't be inflated within the limit."""
    try:
        return message.inflate(INFLATED_BYTES_MAX)
    except (BodyError, ModuleNotFoundError):
        return message.raw_body
