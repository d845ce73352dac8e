# SPDX-License-Identifier: Apache-2.0
"""The two topics of transactions in memory, as Delivery's engine sees them, beside a MemoryStore."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libs.formats.records.transaction_record import RENEWED, Ended, Half, ended_of, half_of
from libs.formats.state.system_topics import HALF_TOPIC, OP_TOPIC
from services.delivery.engine.ports.messages import Copy, JournaledMessage, Note, Read
from services.delivery.errors import AppendRefused

if TYPE_CHECKING:
    from tests.support.memory_delivery import MemoryStore


@dataclass(frozen=True)
class Record:
    """A half message as it is stored."""

    body: str
    properties: Mapping[str, str]
    half: Half


class MemoryHalves:
    """The half messages of a store, in memory. See HalfIndex."""

    def __init__(self, store: "MemoryStore") -> None:
        self.records: list[Record] = []
        self.ended: list[Ended] = []
        self.now_ms = lambda: 0
        """The store's clock."""
        self.seen_count: int | None = None
        """This many half messages are indexed. None: all."""
        self.indexed_offset: int | None = None
        """The index has the log up to here. None: to its end, or nothing with a `seen_count`."""
        self.gone_count = 0
        """This many were removed by retention."""
        self.refused_topics: set[str] = set()
        self.stored = (0, 0)
        self.forgets_ends = False
        """Whether the index by key finds nothing."""
        self._store = store

    async def begin(
        self, name: str, *, topic: str = "t", group: str = "p", body: str = "", has_id: bool = True, **more: str
    ) -> str:
        """Append a half message. Returns its offset id."""
        own = {"UNIQ_KEY": name} if has_id else {}
        properties = {"TRAN_MSG": "true", "PGROUP": group, "REAL_TOPIC": topic, "REAL_QID": "0", **own, **more}
        half = self._put(body or name, properties)
        await self._store.tell()
        return half.first_offset_id

    def check(self, letter: JournaledMessage) -> None:
        """Raise the error with which the log would always refuse the letter."""
        if letter.topic in self.refused_topics:
            raise AppendRefused(f"TOPIC_NOT_FOUND: there is no topic {letter.topic}")

    async def keep(self, letter: Copy | Note) -> None:
        """Append a letter that came with events."""
        if isinstance(letter, Note):
            assert letter.topic == OP_TOPIC
            self.ended.append(ended_of(letter.body, letter.properties, queue_offset=len(self.ended)))
            return
        kept = {name: value for name, value in letter.message.properties.items() if name not in letter.without}
        if letter.topic == HALF_TOPIC:
            self._put(letter.message.body, {**kept, **letter.properties})
        else:
            await self._store.append(letter.topic, letter.message.body, queue_id=letter.queue_id)

    async def halves(self, queue_offset: int, *, wait_s: float) -> Read[Half]:
        """See HalfIndex."""
        await asyncio.sleep(0)
        position = max(queue_offset, self.gone_count)
        if position >= len(self.records[: self.seen_count]) and wait_s:
            await self._store.wait(wait_s)
        known = self.records[: self.seen_count]
        some = known[position : position + 3]
        read_to = min(position + len(some), max(len(known), position))
        return Read([one.half for one in some], read_to, self.gone_count, len(known))

    async def ends(self, queue_offset: int) -> Read[Ended]:
        """See HalfIndex."""
        await asyncio.sleep(0)
        some = self.ended[queue_offset : queue_offset + 3]
        return Read(some, queue_offset + len(some), 0, len(self.ended))

    async def message(self, half: Half) -> Record | None:
        """See HalfIndex."""
        await asyncio.sleep(0)
        return None if half.queue_offset < self.gone_count else self.records[half.queue_offset]

    async def how_ended(self, name: str) -> str | None:
        """See HalfIndex."""
        await asyncio.sleep(0)
        if self.forgets_ends:
            return None
        said = [one for one in self.ended if name in one.ids and one.how != RENEWED]
        return said[-1].how if said else None

    async def half_end(self) -> int:
        """See HalfIndex."""
        return len(self.records[: self.seen_count])

    async def indexed(self) -> int:
        """See HalfIndex."""
        if self.indexed_offset is not None:
            return self.indexed_offset
        return 0 if self.seen_count is not None else self._store.end

    async def floors(self) -> tuple[int, int]:
        """See HalfIndex."""
        return self.stored

    async def store_floors(self, half_offset: int, ended_offset: int) -> None:
        """See HalfIndex."""
        self.stored = half_offset, ended_offset

    def _put(self, body: str, properties: Mapping[str, str]) -> Half:
        place = len(self.records)
        half = half_of(
            properties,
            queue_offset=place,
            physical_offset=self._store.end,
            store_time_ms=self.now_ms(),
            size_bytes=100,
            offset_id=f"{place:032X}",
        )
        self.records.append(Record(body, properties, half))
        self._store.end += 100
        return half
