# SPDX-License-Identifier: Apache-2.0
"""A live tail of a topic, in steps: each step begins at a cursor and returns new messages and the next cursor.

The cursor is all of its state, and the browser has it: a tail continues after a restart of the console.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct
from reput_client import Message, PullResult, ReputError

from services.console.ask.store import Asking
from services.console.pages.page import Gap

NEWEST_COUNT = 20
"""Messages with which a page of a topic begins."""
STEP_COUNT_MAX = 20
"""Messages of a queue that a step shows; further messages are skipped and counted."""
QUEUES_FOLLOWED_MAX = 32
CURSOR = re.compile(r"[0-9]{1,9}\.[0-9]{1,18}(?:,[0-9]{1,9}\.[0-9]{1,18})*")


class Step(Struct, frozen=True):
    """New messages, and where the next step begins."""

    messages: list[Message]
    cursor: str
    skipped_count: int
    gaps: tuple[Gap, ...]


def cursor_text(offsets: Mapping[int, int]) -> str:
    """Return the cursor of queue offsets by queue."""
    return ",".join(f"{queue_id}.{offset}" for queue_id, offset in sorted(offsets.items())[:QUEUES_FOLLOWED_MAX])


def cursor_of(text: str) -> dict[int, int]:
    """Return the queue offsets of a cursor. Raises ValueError for another text."""
    if not CURSOR.fullmatch(text):
        raise ValueError("cursor must be queue.offset, with commas between")
    pairs = [pair.split(".") for pair in text.split(",")]
    if len(pairs) > QUEUES_FOLLOWED_MAX:
        raise ValueError(f"cursor has {len(pairs)} queues: {QUEUES_FOLLOWED_MAX} are followed at most")
    return {int(queue_id): int(offset) for queue_id, offset in pairs}


async def step(asking: Asking, topic: str, cursor: str, *, tags: str, where: str, wait_s: float) -> Step:
    """Return the new messages of all queues, as soon as any has some, or after `wait_s`. Raises ValueError."""
    offsets = cursor_of(cursor)
    pulls = {
        queue_id: asyncio.ensure_future(_pull(asking, topic, queue_id, offset, tags, where, wait_s))
        for queue_id, offset in offsets.items()
    }
    try:
        await asyncio.wait(pulls.values(), return_when=asyncio.FIRST_COMPLETED)
        done = {queue_id: pull.result() for queue_id, pull in pulls.items() if pull.done()}
    finally:
        await _cancelled(pulls.values())
    messages: list[Message] = []
    skipped_count = 0
    for queue_id, answer in done.items():
        if answer is None:
            continue
        offsets[queue_id] = answer.next_queue_offset
        messages += answer.messages
        if answer.max_queue_offset - answer.next_queue_offset > STEP_COUNT_MAX:  # a reader can't follow: go to the end
            end = answer.max_queue_offset - STEP_COUNT_MAX
            skipped_count += end - answer.next_queue_offset
            offsets[queue_id] = end
    messages.sort(key=lambda message: message.store_time_ms)
    return Step(messages, cursor_text(offsets), skipped_count, asking.gaps)


async def _pull(
    asking: Asking, topic: str, queue_id: int, offset: int, tags: str, where: str, wait_s: float
) -> PullResult | None:
    """Return what a queue has, None with a gap if it could not be asked. A wait takes no turn of the page's calls."""
    try:
        return await asking.client.queues.pull(
            topic, queue_id, offset, count=STEP_COUNT_MAX, tags=tags or "*", where=where, wait_s=wait_s
        )
    except ReputError as error:
        asking.tell(f"queue {queue_id} of {topic}", error)
        return None


async def _cancelled(pulls: Iterable[asyncio.Future[PullResult | None]]) -> None:
    """Cancel what still runs, and wait for its end."""
    left = [pull for pull in pulls if not pull.done()]
    for pull in left:
        pull.cancel()
    for pull in left:
        with contextlib.suppress(asyncio.CancelledError):
            await pull
