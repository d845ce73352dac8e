# SPDX-License-Identifier: Apache-2.0
"""A live tail of a topic, in steps: each step begins at a cursor and returns new messages and the next cursor.

The cursor is all of its state, and the browser has it: a tail continues after a restart of the console.
"""

import asyncio
import re
from asyncio import ALL_COMPLETED, FIRST_COMPLETED
from collections.abc import Mapping

from msgspec import Struct
from reput_client import ReputError

from services.console.ask.store import Asking, Store
from services.console.pages.page import Gap
from services.console.pages.rows import MessageRow, row_of

NEWEST_COUNT = 20
"""Messages with which a page of a topic begins."""
STEP_COUNT_MAX = 20
"""Messages of a queue that a step shows; further messages are skipped and counted."""
QUEUES_FOLLOWED_MAX = 32
CURSOR = re.compile(r"[0-9]{1,9}\.[0-9]{1,18}(?:,[0-9]{1,9}\.[0-9]{1,18})*")


class Step(Struct, frozen=True):
    """New messages, and where the next step begins."""

    rows: list[MessageRow]
    """Oldest first."""
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


async def newer(asking: Asking, topic: str, cursor: str, *, tags: str, where: str) -> Step:
    """Return the new messages of all queues at once. Raises ValueError."""
    following = Following(asking.store, topic, cursor, tags=tags, where=where)
    return await following.step(asking, wait_s=0)


class Following:
    """The steps of a live tail. Raises ValueError for a wrong cursor.

    A step takes the messages that have come, and leaves calls that still wait to the next step. So no call is
    cancelled: a cancelled call of grpcio leaves a kilobyte of memory behind (its issue 43360). Answers that wait for
    the next step have rows only, no bodies: a reader may be slow.
    """

    def __init__(self, store: Store, topic: str, cursor: str, *, tags: str, where: str) -> None:
        self._offsets = cursor_of(cursor)
        self._store, self._topic, self._tags, self._where = store, topic, tags or "*", where
        self._pulls: dict[int, asyncio.Task[_Part | ReputError]] = {}

    async def step(self, asking: Asking, *, wait_s: float) -> Step:
        """Return new messages as soon as any queue has some, or after `wait_s`. With a wait of 0 all queues are asked.

        A queue that could not be asked is a gap of `asking`.
        """
        end_s = self._store.clock.monotonic_s() + wait_s
        rows: list[MessageRow] = []
        skipped_count = 0
        while not (rows or skipped_count or asking.gaps):
            self._begin(wait_s)
            left_s = end_s - self._store.clock.monotonic_s() if wait_s else None
            done, _ = await asyncio.wait(
                self._pulls.values(), timeout=left_s, return_when=FIRST_COMPLETED if wait_s else ALL_COMPLETED
            )
            for queue_id in [queue_id for queue_id, pull in self._pulls.items() if pull in done]:
                answer = self._pulls.pop(queue_id).result()
                if isinstance(answer, ReputError):
                    asking.tell(f"queue {queue_id} of {self._topic}", answer)
                    continue
                rows += answer.rows
                skipped_count += self._go_on(queue_id, answer)
            if not done or not wait_s:
                break
        rows.sort(key=lambda row: row.store_time_ms)
        return Step(rows, cursor_text(self._offsets), skipped_count, asking.gaps)

    async def until_over(self) -> None:
        """Return when no call runs any more: at most the wait of a step, and the time of a call, later."""
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)

    def _begin(self, wait_s: float) -> None:
        """Ask the queues that are not being asked."""
        for queue_id, offset in self._offsets.items():
            if queue_id not in self._pulls:
                self._pulls[queue_id] = asyncio.create_task(self._pull(queue_id, offset, wait_s))

    async def _pull(self, queue_id: int, offset: int, wait_s: float) -> "_Part | ReputError":
        """Return the new messages of a queue, or the error of the call. A wait takes no turn of the page's calls."""
        try:
            found = await self._store.client.queues.pull(
                self._topic, queue_id, offset, count=STEP_COUNT_MAX, tags=self._tags, where=self._where, wait_s=wait_s
            )
        except ReputError as error:
            return error
        rows = [row_of(message, self._store.mask) for message in found.messages]
        return _Part(rows, found.next_queue_offset, found.max_queue_offset)

    def _go_on(self, queue_id: int, part: "_Part") -> int:
        """Go on behind a part, or near the end if a reader can't follow. Returns how many messages are skipped."""
        self._offsets[queue_id] = max(part.next_offset, part.end_offset - STEP_COUNT_MAX)
        return self._offsets[queue_id] - part.next_offset


class _Part(Struct, frozen=True):
    """The new messages of a queue."""

    rows: list[MessageRow]
    next_offset: int
    end_offset: int
