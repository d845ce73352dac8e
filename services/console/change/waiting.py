# SPDX-License-Identifier: Apache-2.0
"""The end of what waits at Delivery: a delayed message is cancelled, a transaction is committed or rolled back."""

from msgspec.structs import replace
from reput_client import DelayedMessage, OpenTransaction
from reput_client.aio import AsyncClient

from libs.moments import time_text
from services.console.ask.store import Asking
from services.console.change.prepared import Given, Made, Make, Prepared, tried
from services.console.pages.change import Cell, Input, Preview, digest
from services.console.pages.mask import Mask
from services.console.pages.page import command
from services.console.pages.rows import row_of

DELAYED_MAX = 100
TRANSACTIONS_SEARCHED_MAX = 10_000
"""Open transactions among which one is looked up."""
ENDS = (("commit", "commit: consumers get the message"), ("rollback", "roll back: consumers never get it"))


async def prepare_cancel(asking: Asking, _name: str, given: Given) -> Prepared:
    """Prepare that a delayed message is never delivered."""
    topic, message_id = given.get("topic", "").strip(), given.get("id", "").strip()
    page = Preview(
        commands=(command("delay", "cancel", topic or "TOPIC", message_id or "ID"),),
        title="Cancel a delayed message",
        back="/delayed",
        inputs=(Input("topic", "Topic", topic), Input("id", "Unique id", message_id)),
    )
    if not topic or not message_id:
        return Prepared(page)
    return await tried(asking, page, _cancel(asking, page, topic, message_id))


async def _cancel(asking: Asking, page: Preview, topic: str, message_id: str) -> Prepared:
    """Raises ValueError and ReputError."""
    found = [
        one async for one in asking.client.delayed.list(topic, key=message_id, page_size=DELAYED_MAX)
        if one.message_id == message_id
    ]  # fmt: skip
    if not found:
        raise ValueError(f"no message {message_id[:80]} for topic {topic} waits for its time")
    page = replace(
        page,
        summary=f"Message {message_id} is never delivered to topic {topic}. This can't be undone.",
        columns=("Due", "Tag", "Keys", "Bytes of its body"),
        rows=tuple(_row(one, asking.store.mask) for one in found),
        verb="Cancel the message",
        carried=(("topic", topic), ("id", message_id)),
        state=digest((one.message_id, one.delivery_time_ms) for one in found),
        stale="the message was delivered, cancelled or sent again meanwhile",
    )
    return Prepared(page, _make_cancel(topic, message_id))


def _row(one: DelayedMessage, mask: Mask) -> tuple[Cell, ...]:
    row = row_of(one.message, mask)
    return time_text(one.delivery_time_ms), row.tag, " ".join(row.keys), row.body_size_bytes


def _make_cancel(topic: str, message_id: str) -> Make:
    async def make(client: AsyncClient) -> Made:
        one = await client.delayed.cancel(topic, message_id)
        due = time_text(one.delivery_time_ms)
        return Made(f"Message {message_id} is never delivered to topic {topic}. It was due at {due}.")

    return make


async def prepare_resolve(asking: Asking, _name: str, given: Given) -> Prepared:
    """Prepare the end of an open transaction in the place of its producer."""
    transaction_id, end = given.get("id", "").strip(), given.get("how", "")
    page = Preview(
        commands=(command("tx", "resolve", transaction_id or "ID", "--rollback" if end == "rollback" else "--commit"),),
        title="End a transaction",
        back="/transactions",
        inputs=(Input("id", "Transaction", transaction_id), Input("how", "End", end, ENDS)),
    )
    if not transaction_id or not end:
        return Prepared(page)
    return await tried(asking, page, _resolve(asking, page, transaction_id, end))


async def _resolve(asking: Asking, page: Preview, transaction_id: str, end: str) -> Prepared:
    """Raises ValueError and ReputError."""
    if end not in dict(ENDS):
        raise ValueError(f"how is {end[:40]!r}: commit or rollback is expected")
    one = await _find(asking, transaction_id)
    will = "Consumers get its message" if end == "commit" else "Consumers never get its message"
    page = replace(
        page,
        summary=f"{will}, in the place of its producer's decision. This can't be undone.",
        warnings=("Its producers were not asked yet, and may still end it themselves.",) if not one.check_count else (),
        columns=("Begun", "Producer group", "Topic", "Queue", "Checks of its producers"),
        rows=((time_text(round(one.begun.timestamp() * 1000)), one.group, one.topic, one.queue_id, one.check_count),),
        verb="Commit it" if end == "commit" else "Roll it back",
        carried=(("id", one.id), ("how", end)),
        state=digest((one.id, one.group, one.topic)),
        stale="the transaction has changed meanwhile",
    )
    return Prepared(page, _make_resolve(one, end))


async def _find(asking: Asking, transaction_id: str) -> OpenTransaction:
    """Return an open transaction by its id, or by the offset id of its message. Raises ValueError and ReputError."""
    count = 0
    async for one in asking.client.transactions.list():
        if transaction_id in (one.id, one.offset_message_id):
            return one
        count += 1
        if count == TRANSACTIONS_SEARCHED_MAX:
            raise ValueError(f"it is not among the {count:,} oldest open transactions: the command ends it")
    raise ValueError(f"no open transaction has the id {transaction_id[:80]}")


def _make_resolve(one: OpenTransaction, end: str) -> Make:
    async def make(client: AsyncClient) -> Made:
        if end == "commit":
            await client.transactions.commit(one.id, group=one.group)
            return Made(f"Transaction {one.id} is committed: consumers of topic {one.topic} get its message.")
        await client.transactions.rollback(one.id, group=one.group)
        return Made(f"Transaction {one.id} is rolled back: consumers never get its message.")

    return make
