# SPDX-License-Identifier: Apache-2.0
"""The questions about delayed messages and transactions, to Delivery."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from reput.delivery.v1 import delay_service_pb2, transaction_service_pb2
from reput_client import DelayedMessage, Message, OpenTransaction, Queue
from reput_client.core.call import Call
from reput_client.core.sharing.delayed import delayed_of
from reput_client.core.sharing.transactions import open_transaction
from reput_client.core.types import to_timestamp

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import CHECKED_TOPIC, HALF_TOPIC, TIMER_TOPIC
from libs.moments import NotAMoment, parse_time
from services.console.ask.store import Asking, Store, each, together
from services.console.pages.find import zone_of
from services.console.pages.mask import KEYS, Mask
from services.console.pages.rows import MessageRow, row_of
from services.console.pages.waiting import (
    ROWS_OF_A_PAGE,
    DelayedPage,
    DelayedQuestion,
    TransactionsPage,
    delayed_page,
    transactions_page,
    waiting_row,
)

STORED_MAX = 1_000
"""Messages with a key that are read of a topic where messages wait: most of them no longer wait."""
STORED_SHOWN_MAX = 60
OPEN_TRANSACTIONS_MAX = 10_000
"""Open transactions among which a key is looked for, the oldest first: ten calls."""


class Waiting(Struct, frozen=True):
    """The waiting messages with a key."""

    rows: tuple[MessageRow, ...] = ()
    is_asked: bool = False
    """Whether they were looked for."""


async def waiting_by_key(asking: Asking, key: str, topic: str, count: int) -> Waiting:
    """Return the messages with a key, or unique id, that wait for their time or for the end of their transaction.

    Without Delivery these are all messages in the topics where they wait: whether they still wait is not known.
    Messages of transactions that were given up are among them, too: no list of topics has their topic.
    """
    given_up = await _in_topic_of_the_store(asking, CHECKED_TOPIC, key, topic)
    if not asking.store.has_delivery:
        return Waiting((*await _where_they_wait(asking, key, topic), *given_up[:count]), is_asked=True)
    found = await asyncio.gather(
        _delayed_by_key(asking, key, topic, count), _of_levels(asking, key), _half_by_key(asking, key)
    )
    of_topic = [[row for row in some if topic in ("", row.topic)] for some in found]
    of_topic.append(given_up)
    if any(len(some) > count for some in of_topic):
        asking.left_out("further messages that wait", f"{count} of a kind are shown")
    return Waiting(tuple(row for some in of_topic for row in some[:count]), is_asked=True)


async def _where_they_wait(asking: Asking, key: str, topic: str) -> list[MessageRow]:
    stored = (_in_topic_of_the_store(asking, name, key, topic) for name in (TIMER_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC))
    rows = [row for some in await together(stored) for row in some]
    if rows:
        asking.left_out("whether these messages still wait", "Delivery knows, and the console has no Delivery to ask")
    if len(rows) > STORED_SHOWN_MAX:
        asking.left_out("further messages that may wait", f"{STORED_SHOWN_MAX} are shown")
    return rows[:STORED_SHOWN_MAX]


async def _in_topic_of_the_store(asking: Asking, name: str, key: str, topic: str) -> list[MessageRow]:
    stored = await _stored(asking, name, key)
    return [row for row, real_topic in stored if topic in ("", row.topic, real_topic)]


async def _delayed_by_key(asking: Asking, key: str, topic: str, count: int) -> list[MessageRow]:
    request = delay_service_pb2.ListDelayedRequest(topic=topic, key=key, page_size=count + 1)
    found: Call[Any] = Call(request)
    answer, _ = await asking.ask_by("delayed messages", asking.store.run(found))
    messages = _shown(answer.messages, DelayedQuestion(key=key), asking.store.mask) if answer is not None else []
    return [
        waiting_row(row_of(one.message, asking.store.mask), one.topic, due_ms=one.delivery_time_ms) for one in messages
    ]


async def _of_levels(asking: Asking, key: str) -> list[MessageRow]:
    """Return the messages of delay levels. A level has a queue, and its last `waiting_count` messages wait."""
    levels = {one.level: one for one in await asking.ask("the delay levels", asking.client.delayed.levels()) or ()}
    if not any(one.waiting_count for one in levels.values()):
        return []
    stored = await _stored(asking, SCHEDULE_TOPIC, key)

    async def end(queue_id: int) -> Queue | None:
        return await asking.ask("the delay levels", asking.client.queues.range(SCHEDULE_TOPIC, queue_id))

    ends = dict(await each({row.queue_id for row, _ in stored}, end))
    rows = []
    for row, topic in stored:
        level, queue = levels.get(row.queue_id + 1), ends[row.queue_id]
        if level is None or queue is None or row.queue_offset < queue.max_queue_offset - level.waiting_count:
            continue
        rows.append(waiting_row(row, topic, due_ms=row.store_time_ms + round(level.delay_s * 1_000)))
    return rows


async def _half_by_key(asking: Asking, key: str) -> list[MessageRow]:
    """Return the messages of open transactions. The index also knows messages whose transaction has ended."""
    stored = {row.id: (row, topic) for row, topic in await _stored(asking, HALF_TOPIC, key)}
    if not stored:
        return []
    listed = asking.client.transactions.list()
    transactions, is_cut = await asking.first("open transactions", listed, OPEN_TRANSACTIONS_MAX)
    if is_cut:
        asking.left_out("further open transactions", f"the key is looked for in the first {OPEN_TRANSACTIONS_MAX:,}")
    return [waiting_row(*stored[one.offset_message_id]) for one in transactions if one.offset_message_id in stored]


async def _stored(asking: Asking, topic: str, key: str) -> list[tuple[MessageRow, str]]:
    """Return the messages of a topic of the store with a key, each with its topic of users.

    If keys are masked, these are the messages with this unique id.
    """
    found = _with_topic(asking.client.query.by_key(topic, key), asking.store.mask)
    rows, is_cut = await asking.first(f"the key in {topic}", found, STORED_MAX)
    if is_cut:
        asking.left_out(f"further messages in {topic}", f"the newest {STORED_MAX:,} with this key are read")
    if asking.store.mask.covers(KEYS):
        return [one for one in rows if one[0].unique_id.upper() == key.upper()]
    return rows


async def _with_topic(messages: AsyncIterator[Message], mask: Mask) -> AsyncIterator[tuple[MessageRow, str]]:
    """Yield messages as rows, so that no body stays in memory."""
    async for message in messages:
        yield row_of(message, mask), str(message.properties.get("REAL_TOPIC", message.topic))


async def delayed(store: Store, question: DelayedQuestion, zone: str) -> DelayedPage:
    """Return a part of the messages that wait for their time. Times without a zone are in the reader's."""
    asking = Asking(store)
    page = partial(delayed_page, now_ms=store.clock.now_ms(), mask=store.mask)
    if not store.has_delivery:
        return page(question, (), has_delivery=False)
    try:
        question = _timed(question, zone, store)
    except NotAMoment as error:
        return page(question, (), refusal=str(error))
    if refusal := store.mask.refusal(key=question.key):
        return page(question, (), refusal=refusal)
    request = delay_service_pb2.ListDelayedRequest(
        topic=question.topic,
        key=question.key,
        start_time=to_timestamp(question.start_ms),
        end_time=to_timestamp(question.end_ms),
        page_size=ROWS_OF_A_PAGE,
        page_token=question.after,
    )
    found: Call[Any] = Call(request)
    answer, refusal = await asking.ask_by("the delayed messages", store.run(found))
    levels = await asking.ask("the delay levels", asking.client.delayed.levels())
    return page(
        question,
        asking.gaps,
        refusal=refusal,
        messages=_shown(answer.messages, question, store.mask) if answer is not None else (),
        levels=levels or (),
        next_token=answer.next_page_token if answer is not None else "",
    )


def _shown(messages: Iterable[Any], question: DelayedQuestion, mask: Mask) -> list[DelayedMessage]:
    """Return messages as values. If keys are masked, a text finds the message that has it as its id, and no other."""
    found = [delayed_of(one) for one in messages]
    if question.key and mask.covers(KEYS):
        return [one for one in found if one.message_id.upper() == question.key.upper()]
    return found


def _timed(question: DelayedQuestion, zone: str, store: Store) -> DelayedQuestion:
    """Return the question with the moments of its texts. Raises NotAMoment."""

    def moment_ms(text: str) -> int | None:
        return parse_time(text, now=store.now, zone=zone_of(zone)) if text else None

    return replace(question, start_ms=moment_ms(question.start), end_ms=moment_ms(question.end))


async def transactions(store: Store, group: str, after: str) -> TransactionsPage:
    """Return a part of the open transactions."""
    asking = Asking(store)
    if not store.has_delivery:
        return transactions_page(group, (), has_delivery=False)
    request = transaction_service_pb2.ListTransactionsRequest(
        producer_group=group, page_size=ROWS_OF_A_PAGE, page_token=after
    )
    found: Call[Any] = Call(request)
    answer, refusal = await asking.ask_by("the transactions", store.run(found))
    listed = [open_transaction(one) for one in answer.transactions] if answer is not None else []

    async def row(one: OpenTransaction) -> MessageRow | None:
        message = await asking.ask("messages of transactions", asking.client.query.by_id(one.offset_message_id))
        return row_of(message, store.mask) if message is not None else None

    return transactions_page(
        group,
        asking.gaps,
        refusal=refusal,
        transactions=await each(listed, row),
        has_checked_topic=await asking.ask("the topics", asking.client.topics.get(CHECKED_TOPIC)) is not None,
        next_token=answer.next_page_token if answer is not None else "",
    )
