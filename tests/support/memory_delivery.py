# SPDX-License-Identifier: Apache-2.0
"""A log and its index in memory, as Delivery's engine sees them, with possible faults between them."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.delivery_record import Place, Policy
from libs.formats.state.system_topics import HALF_TOPIC, TIMER_TOPIC
from libs.log.log_clock import LogClock
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable, LogFollows, TopicNotFound
from services.delivery.config import DeliveryConfig
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.ports.log import TopicQueues
from services.delivery.engine.ports.messages import (
    Copy,
    DeadLetter,
    Found,
    JournaledMessage,
    Measure,
    Note,
    Part,
    Pulled,
    Replayed,
    SealedQueue,
    Stored,
    Wanted,
    Written,
)
from services.delivery.errors import JournalLost, NotOwner
from tests.support.memory_levels import MemoryLevels, Waiting
from tests.support.memory_timers import MemoryTimers, Sent
from tests.support.memory_transactions import MemoryHalves
from tests.support.patience import eventually

RECORD_SIZE_BYTES = 100
LOST = (JournalLost, DependencyUnavailable, NotOwner)
"""Errors of a call that was not answered, or came too early. The caller repeats it."""


class MemoryStore:
    """A log together with its index. A message is the text that was appended."""

    def __init__(self, queue_count: int = 2) -> None:
        self.journal_records: list[tuple[int, bytes]] = []
        """Physical offsets and bodies."""
        self.next = self.min_journal_offset = 0
        self.end = 0
        self.segment_size_bytes = 1 << 40
        self.offsets: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self.policies: dict[str, Policy] = {}
        self.min_offsets: dict[tuple[str, int], int] = defaultdict(int)
        self.lost_answers = 0
        """This many of the next writes are done, and the writer gets no answer."""
        self.refused_writes = 0
        self.write_delay_s = self.pull_delay_s = 0.0
        self.indexed_count: int | None = None
        """This many messages of each queue are indexed. None: all."""
        self.is_following = False
        self.last_store_time_ms = 0
        self.written = asyncio.Condition()
        self.held: tuple[asyncio.Event, asyncio.Event] | None = None
        """The events of the next write: it is under way, and it may arrive."""
        self.transactions = MemoryHalves(self)
        self.timers = MemoryTimers(self)
        self.levels = MemoryLevels(self)
        self.shares: dict[str, TopicQueues] = {}
        """The queues that are here of topics that lie on several shards."""
        self.shards: dict[str, JournalOwner] = {}
        """The Deliveries of other shards, by name. A missing shard is away."""
        self._queues: dict[str, list[list[Found]]] = {}
        self._queue_count = queue_count

    async def append(
        self,
        topic: str,
        message: Any,
        *,
        queue_id: int = 0,
        key: int = 0,
        size_bytes: int = RECORD_SIZE_BYTES,
        origin_topic: str = "",
        store_time_ms: int = 0,
    ) -> int:
        """Append a message. Returns its queue offset."""
        queue = self.queues(topic)[queue_id]
        queue.append(Found(len(queue), key, size_bytes, message, origin_topic, store_time_ms))
        self.end += RECORD_SIZE_BYTES
        await self.tell()
        return len(queue) - 1

    def widen(self, queue_count: int) -> None:
        """Give all topics more queues."""
        self._queue_count = queue_count
        for queues in self._queues.values():
            queues += [[] for _ in range(queue_count - len(queues))]

    def queues(self, topic: str) -> list[list[Found]]:
        """Return all messages of a topic, by queue."""
        return self._queues.setdefault(topic, [[] for _ in range(self._queue_count)])

    async def next_number(self) -> int:
        """See Log."""
        if self.is_following:
            raise LogFollows("commitlog", "another log leads")
        return self.next

    async def write(self, number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        """See Log."""
        del is_safe
        await asyncio.sleep(self.write_delay_s)
        if self.held is not None:
            (is_under_way, arrives), self.held = self.held, None
            is_under_way.set()
            await arrives.wait()
        if number != self.next:
            raise JournalLost("another process wrote the journal")
        if self.is_following:
            raise LogFollows("commitlog", "another log leads")
        if self.refused_writes:
            self.refused_writes -= 1
            raise DependencyUnavailable("commitlog", "the disk is full")
        for letter in letters:
            self.transactions.check(letter)
        self.timers.check([letter for letter in letters if self._room(letter) is self.timers])
        self.levels.check([letter for letter in letters if self._room(letter) is self.levels])
        for letter in letters:
            if isinstance(letter, DeadLetter | Replayed):
                origin_topic = letter.origin.topic if isinstance(letter, DeadLetter) else ""
                await self.append(letter.topic, letter.found.message, origin_topic=origin_topic)
            else:
                await self._room(letter).keep(letter)
        written = Written(len(self.journal_records), self.end, self.timers.now_ms(), self.timers.ahead_ms())
        self.journal_records.append((self.end, body))
        self.next += 1
        self.end += RECORD_SIZE_BYTES
        await self.tell()
        if self.lost_answers:
            self.lost_answers -= 1
            raise JournalLost("nobody knows whether it was stored")
        return written

    async def ahead_ms(self) -> int:
        """See Log."""
        return self.timers.ahead_ms()

    async def active_segment(self) -> int:
        """See Log."""
        return self.end // self.segment_size_bytes * self.segment_size_bytes

    async def end_offset(self) -> int:
        """See Log."""
        return self.end

    async def topic_queues(self, topic: str) -> TopicQueues:
        """See Log."""
        if topic not in self._queues:
            raise TopicNotFound(topic)
        return self.shares.get(topic) or TopicQueues(range(self._queue_count))

    async def sealed_queues(self, shard: str, group: str, topic: str, queue_ids: Sequence[int]) -> list[SealedQueue]:
        """See Shards."""
        if (owner := self.shards.get(shard)) is None:
            raise DependencyUnavailable("delivery", f"shard {shard} is away")
        return await (await owner.engine()).sealed_queues.of(group, topic, queue_ids)

    async def refusal(self, topic: str) -> str:
        """See Log."""
        return "" if topic in self._queues else f"there is no topic {topic}"

    async def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        wanted: Wanted,
        count: int,
        size_bytes: int,
        wait_s: float,
    ) -> Pulled:
        """See Index. A tag is the first letter of a message, and a condition is a letter anywhere in it."""
        await asyncio.sleep(self.pull_delay_s if not wait_s else 0)
        queue, least = self.queues(topic)[queue_id][: self.indexed_count], self.min_offsets[topic, queue_id]
        if queue_offset > len(queue):
            return Pulled([], len(queue), least, len(queue))
        queue_offset = max(queue_offset, least)
        if queue_offset >= len(queue) and wait_s:
            await self.wait(wait_s)
        some: list[Found] = []
        room = size_bytes
        for one in self.queues(topic)[queue_id][: self.indexed_count][queue_offset : queue_offset + count]:
            if some and one.size_bytes > room:
                break
            some.append(one)
            room -= one.size_bytes
        found = [one for one in some if self.passes(one, wanted)]
        return Pulled(found, queue_offset + len(some), least, len(queue))

    def passes(self, found: Found, wanted: Wanted) -> bool:
        """See Index, and `pull`."""
        is_tagged = wanted.tags == "*" or found.message[0] in wanted.tags.split("||")
        return is_tagged and (not wanted.where or wanted.where in found.message)

    async def journal(self, queue_offset: int, *, wait_s: float) -> tuple[list[Stored], int]:
        """See Index."""
        queue_offset = max(queue_offset, self.min_journal_offset)
        if queue_offset >= len(self.journal_records):
            await self.wait(wait_s)
        some = self.journal_records[queue_offset:]
        return [Stored(queue_offset + index, body) for index, (_, body) in enumerate(some)], queue_offset + len(some)

    async def queue_end(self, topic: str, queue_id: int, *, wait_s: float) -> int:
        """See Index."""
        ends = {
            TIMER_TOPIC: self.timers.end,
            HALF_TOPIC: self.transactions.half_end,
            SCHEDULE_TOPIC: partial(self.levels.end, queue_id),
        }
        if not (end := await ends[topic]()):
            await self.wait(wait_s)
            end = await ends[topic]()
        return end

    async def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """See Index."""
        if topic == SCHEDULE_TOPIC:
            return self.levels.bounds()
        return {
            queue_id: (self.min_offsets[topic, queue_id], len(queue))
            for queue_id, queue in enumerate(self.queues(topic))
            if queue
        }

    async def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """See Index. A message without a store time has its queue offset as time."""
        queue = self.queues(topic)[queue_id]
        before = [one for one in queue if (one.store_time_ms or one.queue_offset) < time_ms]
        return len(before)

    async def measures(self, parts: Sequence[Part]) -> Sequence[Measure]:
        """See Index."""
        return list(map(self._measure, parts))

    def _measure(self, part: Part) -> Measure:
        queue, least = self.queues(part.topic)[part.queue_id], self.min_offsets[part.topic, part.queue_id]
        counted = (at for at in queue if at.queue_offset >= max(part.start, least) or at.queue_offset in part.others)
        times = (at.store_time_ms for at in queue if at.queue_offset >= max(part.oldest, least))
        return Measure(sum(at.size_bytes for at in counted), next(times, None))

    async def stored_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """See Index."""
        return self.offsets[group].get((topic, queue_id))

    async def stored_offsets(self) -> Mapping[Place, int]:
        """See Index."""
        return {
            Place(group, *queue): offset for group, offsets in self.offsets.items() for queue, offset in offsets.items()
        }

    async def store_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """See Index."""
        self.offsets[group].update(offsets)

    async def stored_policy(self, group: str) -> Policy | None:
        """See Index."""
        return self.policies.get(group)

    async def store_policies(self, policies: Mapping[str, Policy | None]) -> None:
        """See Index."""
        for group, policy in policies.items():
            if policy is None:
                self.policies.pop(group, None)
            else:
                self.policies[group] = policy

    def _room(self, letter: JournaledMessage) -> MemoryTimers | MemoryLevels | MemoryHalves:
        """Return the store that keeps a letter that is not a dead letter."""
        if isinstance(letter, Copy) and isinstance(letter.message, Waiting):
            return self.levels
        is_timed = (
            letter.topic == TIMER_TOPIC
            if isinstance(letter, Note)
            else (isinstance(letter, Copy) and isinstance(letter.message, Sent))
        )
        return self.timers if is_timed else self.transactions

    async def tell(self) -> None:
        """Notify all tasks that wait for something new."""
        async with self.written:
            self.written.notify_all()

    async def wait(self, wait_s: float) -> None:
        """Wait for a new message or record."""
        try:
            async with asyncio.timeout(wait_s), self.written:
                await self.written.wait()
        except TimeoutError:
            pass


@asynccontextmanager
async def delivering(
    store: MemoryStore, clock: ManualClock, *, log_machine: ManualClock | None = None, **settings: int
) -> AsyncIterator[JournalOwner]:
    """Run a process that delivers the messages of a store. Without a `log_machine` the log has the same clock."""
    config, timers = DeliveryConfig(**settings), store.timers
    log_clock = LogClock(log_machine or clock, store.last_store_time_ms)

    def store_time_ms() -> int:
        log_clock.saw(max(store.last_store_time_ms, log_clock.now_ms()))
        store.last_store_time_ms = log_clock.now_ms()
        return store.last_store_time_ms

    def ahead_ms() -> int:
        log_clock.look()
        return log_clock.ahead_ms()

    timers.now_ms = store.transactions.now_ms = store_time_ms
    timers.ahead_ms = ahead_ms
    rooms = {"log": store, "index": store, "halves": store.transactions, "timers": timers, "levels": store.levels}
    rooms |= {"shards": store}
    make = partial(GroupEngine, **rooms, clock=clock, config=config)
    level_count = len(config.delay_levels_ms())
    owner = JournalOwner(store, store, make, clock, level_count=level_count, skip_below=config.journal_skip_below)
    owner.start()
    try:
        yield owner
    finally:
        await owner.stop()


async def engine_of(owner: JournalOwner, *, began_count: int = 1) -> GroupEngine:
    """Wait until a process delivers."""
    with contextlib.suppress(NotOwner):
        await owner.engine()
    await eventually(lambda: owner.began_count >= began_count)
    return await owner.engine()
