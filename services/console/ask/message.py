# SPDX-License-Identifier: Apache-2.0
"""What the page of a message asks: the message, and the groups with a position in its queue."""

import asyncio

from reput_client import BodyError, Message

from services.console.ask.groups import known_groups
from services.console.ask.store import Asking, Store
from services.console.pages.body import INFLATED_BYTES_MAX
from services.console.pages.message import MessagePage, page_of


async def message(store: Store, message_id: str, topic: str, form: str) -> MessagePage:
    """Return the page of a message, by its offset message id, or by its unique id in a topic."""
    asking = Asking(store)
    found = await asking.ask("the message", asking.client.query.by_id(message_id, topic=topic))
    groups = (await known_groups(asking)).facts() if found is not None else []
    hides = store.hides_bodies
    return await asyncio.to_thread(page_of, message_id, found, groups, asking.gaps, form=form, hides_bodies=hides)


async def body(store: Store, message_id: str, topic: str) -> tuple[bytes | None, bool]:
    """Return the body of a message to save it, None without one, and whether the store could be asked."""
    asking = Asking(store)
    found = await asking.ask("the message", asking.client.query.by_id(message_id, topic=topic))
    if found is None or store.hides_bodies:
        return None, not asking.gaps
    return await asyncio.to_thread(_whole, found), True


def _whole(message: Message) -> bytes:
    """Return the inflated body, or the bytes as they are stored if they can't be inflated within the limit."""
    try:
        return message.inflate(INFLATED_BYTES_MAX)
    except (BodyError, ModuleNotFoundError):
        return message.raw_body
