# SPDX-License-Identifier: Apache-2.0
"""The end of a wait at Delivery: a delayed message is cancelled, a transaction is committed or rolled back."""

from msgspec.structs import replace
from reput_client import DelayedMessage, OpenTransaction
from reput_client.aio import AsyncClient

from libs.moments import time_text
from services.console.ask.store import Asking
from services.console.change.prepared import Apply, Arguments, Prepared, Result, with_refusal
from services.console.pages.change import Cell, Input, Preview, digest
from services.console.pages.mask import Mask
from services.console.pages.page import command
from services.console.pages.rows import row_of

DELAYED_MAX = 100
TRANSACTIONS_SEARCHED_MAX = 10_000
"""Open transactions that a search by id reads, the oldest first."""
UNASKED = "Its producers were not asked yet, and may still end it themselves."
ENDS = (("commit", "commit: consumers get the message"), ("rollback", "roll back: consumers never get it"))


async def prepare_cancel(asking: Asking, _name: str, arguments: Arguments) -> Prepared:
    """Prepare that a delayed message is never delivered."""
    topic, message_id = arguments.get("topic", "").strip(), arguments.get("id", "").strip()
    page = Preview(
        commands=(command("delay", "cancel", topic or "TOPIC", message_id or "ID"),),
        title="Cancel a delayed message",
        back="/delayed",
        inputs=(Input("topic", "Topic", topic), Input("id", "Unique id", message_id)),
    )
    if not topic or not message_id:
        return Prepared(page)
    return await with_refusal(asking, page, _cancel(asking, page, topic, message_id))


async def _cancel(asking: Asking, page: Preview, topic: str, message_id: str) -> Prepared:
    """Raises ValueError and ReputError."""
    listed = asking.client.delayed.list(topic, key=message_id, page_size=DELAYED_MAX)
    found = [delayed async for delayed in listed if delayed.message_id == message_id]
    if not found:
        raise ValueError(f"no message {message_id[:80]} for topic {topic} waits for its time")
    page = replace(
        page,
        summary=f"Message {message_id} is never delivered to topic {topic}. This can't be undone.",
        columns=("Due", "Tag", "Keys", "Bytes of its body"),
        rows=tuple(_row(delayed, asking.store.mask) for delayed in found),
        verb="Cancel the message",
        carried=(("topic", topic), ("id", message_id)),
        state=digest((delayed.message_id, delayed.delivery_time_ms) for delayed in found),
        stale="the message was delivered, cancelled or sent again meanwhile",
    )
    return Prepared(page, _apply_cancel(topic, message_id))


def _row(delayed: DelayedMessage, mask: Mask) -> tuple[Cell, ...]:
    row = row_of(delayed.message, mask)
    return time_text(delayed.delivery_time_ms), row.tag, " ".join(row.keys), row.body_size_bytes


def _apply_cancel(topic: str, message_id: str) -> Apply:
    async def apply(client: AsyncClient) -> Result:
        cancelled = await client.delayed.cancel(topic, message_id)
        due = time_text(cancelled.delivery_time_ms)
        return Result(f"Message {message_id} is never delivered to topic {topic}. It was due at {due}.")

    return apply


async def prepare_resolve(asking: Asking, _name: str, arguments: Arguments) -> Prepared:
    """Prepare the end of an open transaction in the place of its producer."""
    transaction_id, end = arguments.get("id", "").strip(), arguments.get("how", "")
    page = Preview(
        commands=(command("tx", "resolve", transaction_id or "ID", "--rollback" if end == "rollback" else "--commit"),),
        title="End a transaction",
        back="/transactions",
        inputs=(Input("id", "Transaction", transaction_id), Input("how", "End", end, ENDS)),
    )
    if not transaction_id or not end:
        return Prepared(page)
    return await with_refusal(asking, page, _resolve(asking, page, transaction_id, end))


async def _resolve(asking: Asking, page: Preview, transaction_id: str, end: str) -> Prepared:
    """Raises ValueError and ReputError."""
    if end not in dict(ENDS):
        raise ValueError(f"how is {end[:40]!r}: commit or rollback is expected")
    transaction = await _find(asking, transaction_id)
    begun = time_text(round(transaction.begun.timestamp() * 1000))
    will = "Consumers get its message" if end == "commit" else "Consumers never get its message"
    page = replace(
        page,
        summary=f"{will}, in the place of its producer's decision. This can't be undone.",
        warnings=() if transaction.check_count else (UNASKED,),
        columns=("Begun", "Producer group", "Topic", "Queue", "Checks of its producers"),
        rows=((begun, transaction.group, transaction.topic, transaction.queue_id, transaction.check_count),),
        verb="Commit it" if end == "commit" else "Roll it back",
        carried=(("id", transaction.id), ("how", end)),
        state=digest((transaction.id, transaction.group, transaction.topic)),
        stale="the transaction has changed meanwhile",
    )
    return Prepared(page, _apply_resolve(transaction, end))


async def _find(asking: Asking, transaction_id: str) -> OpenTransaction:
    """Return an open transaction by its id, or by the offset id of its message. Raises ValueError and ReputError."""
    count = 0
    async for transaction in asking.client.transactions.list():
        if transaction_id in (transaction.id, transaction.offset_message_id):
            return transaction
        count += 1
        if count == TRANSACTIONS_SEARCHED_MAX:
            raise ValueError(f"it is not among the {count:,} oldest open transactions: the command ends it")
    raise ValueError(f"no open transaction has the id {transaction_id[:80]}")


def _apply_resolve(transaction: OpenTransaction, end: str) -> Apply:
    async def apply(client: AsyncClient) -> Result:
        if end == "commit":
            await client.transactions.commit(transaction.id, group=transaction.group)
            return Result(
                f"Transaction {transaction.id} is committed: consumers of topic {transaction.topic} get its message."
            )
        await client.transactions.rollback(transaction.id, group=transaction.group)
        return Result(f"Transaction {transaction.id} is rolled back: consumers never get its message.")

    return apply
