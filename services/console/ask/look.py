# SPDX-License-Identifier: Apache-2.0
"""A look into a topic: the messages from a time on, over all queues, or from an offset of a queue on."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from reput_client import Message, Queue

from libs.moments import NotAMoment, parse_time
from services.console.ask.store import Asking, each
from services.console.ask.tail import QUEUES_FOLLOWED_MAX, cursor_of, cursor_text
from services.console.pages.find import first_in_time, zone_of
from services.console.pages.rows import MessageRow, row_of
from services.console.pages.topics import Look

MESSAGES_SHOWN = 20
OFFSET_DIGITS_MAX = 18


async def looked(asking: Asking, queues: Sequence[Queue], look: Look, zone: str) -> Look:
    """Return a look with its messages, or why it can't be answered. A time without a zone is in the reader's."""
    if not look.is_asked:
        return look
    try:
        if look.cursor:
            return await _merged(asking, queues, look, cursor_of(look.cursor))
        if look.at:
            return await _at_time(asking, queues, look, parse_time(look.at, now=asking.store.now, zone=zone_of(zone)))
        return await _at_offset(asking, queues, look, _number("queue", look.queue), _number("offset", look.offset))
    except ValueError as error:  # also NotAMoment
        return replace(look, refusal=str(error))


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX):
        raise ValueError(f"{name} is {text!r}: give a number from 0 on, for a look at an offset of a queue")
    return int(text)


async def _at_time(asking: Asking, queues: Sequence[Queue], look: Look, time_ms: int) -> Look:
    if time_ms < 0:
        raise NotAMoment(f"{look.at!r} is before 1970")
    if len(queues) > QUEUES_FOLLOWED_MAX:
        asking.left_out("the time in further queues", f"the first {QUEUES_FOLLOWED_MAX} are looked at")

    async def offset(queue: Queue) -> int | None:
        call = asking.client.queues.offset_by_time(queue.topic, queue.queue_id, time_ms)
        return await asking.ask(f"the time in queue {queue.queue_id}", call)

    asked = await each(queues[:QUEUES_FOLLOWED_MAX], offset)
    return await _merged(asking, queues, look, {queue.queue_id: at for queue, at in asked if at is not None})


async def _merged(asking: Asking, queues: Sequence[Queue], look: Look, offsets: Mapping[int, int]) -> Look:
    """Return the first messages in time from these offsets on, and the cursor of the messages behind them."""

    async def begin(queue: Queue) -> tuple[list[MessageRow], bool]:
        messages = await _pulled(asking, queue, max(offsets[queue.queue_id], queue.min_queue_offset))
        has_more = bool(messages) and messages[-1].queue_offset + 1 < queue.max_queue_offset
        return [row_of(message, asking.store.mask) for message in messages], has_more

    looked_at = [
        queue for queue in queues if offsets.get(queue.queue_id, queue.max_queue_offset) < queue.max_queue_offset
    ]
    rows, is_cut = first_in_time([answer for _, answer in await each(looked_at, begin)], MESSAGES_SHOWN)
    ends = dict(offsets) | {row.queue_id: row.queue_offset + 1 for row in rows}
    note = "" if rows else "No message was stored at this time or later."
    return replace(look, rows=tuple(rows), note=note, next_cursor=cursor_text(ends) if is_cut else "")


async def _at_offset(asking: Asking, queues: Sequence[Queue], look: Look, queue_id: int, offset: int) -> Look:
    queue = next((one for one in queues if one.queue_id == queue_id), None)
    if queue is None:
        raise ValueError(f"queue is {queue_id}: this topic has had no message in it")
    start = max(offset, queue.min_queue_offset)
    messages = await _pulled(asking, queue, start) if start < queue.max_queue_offset else []
    end = messages[-1].queue_offset + 1 if messages else queue.max_queue_offset
    if start >= queue.max_queue_offset:
        note = f"No message is there: queue {queue_id} ends at offset {queue.max_queue_offset:,}."
    elif offset < start:
        note = f"Messages before offset {start:,} are gone."
    else:
        note = ""
    rows = tuple(row_of(message, asking.store.mask) for message in messages)
    return replace(look, rows=rows, note=note, next_offset=str(end) if end < queue.max_queue_offset else "")


async def _pulled(asking: Asking, queue: Queue, offset: int) -> list[Message]:
    pull = asking.client.queues.pull(queue.topic, queue.queue_id, offset, count=MESSAGES_SHOWN)
    answer = await asking.ask(f"messages of queue {queue.queue_id}", pull)
    return answer.messages if answer is not None else []
