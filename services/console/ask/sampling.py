# SPDX-License-Identifier: Apache-2.0
"""Sampler: every 10 s the progress of topics and groups, for the history in memory."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence

from msgspec.structs import replace
from reput.indexer.v1.queue_service_pb2 import ListQueuesRequest
from reput_client import ConsumerOffset, ShareGroup
from reput_client.core.call import PAGE_SIZE

from libs.formats.state.system_topics import is_system_topic
from services.console.ask.asked import Asked
from services.console.ask.groups import Known, kept_offsets, measured, shared_group, shared_names
from services.console.ask.store import Asking, Store, each
from services.console.pages.groups import GroupFacts, GroupQueue, lag_of
from services.console.pages.history import STEP_MS, Ring

_log = logging.getLogger(__name__)

QUEUES_READ_MAX = 5_000
"""Queues of the store, by topic, whose ends a sample reads."""
NEW_GROUPS_ASKED = 10
"""Groups without a place that a sample asks, in turn, beside all groups with a place."""
GROUPS_OF_A_PART, PART_COUNT_MAX, REST_S = 20, 5, 1.0
"""Groups that are asked together, and the rest between such parts.

A part is a small burst for the store and for the loop of the console. More parts cost more: after each burst the
threads of gRPC look for work for three seconds, most of the processor time of an idle console.
"""
MEASURED_QUEUES_MAX = 200
"""Queues of groups that keep offsets whose bytes and seconds a sample asks, in a call for each group."""


class Sampler:
    """Fills the ring. Callers: the event loop."""

    def __init__(self, store: Store, ring: Ring) -> None:
        self._store, self._ring = store, ring
        self._ended = asyncio.Event()
        self._turn = 0
        self._before_ms = 0
        self._measurements: dict[tuple[str, GroupQueue], tuple[int | None, float]] = {}
        """Bytes of the lag of queues, and when their oldest message was stored."""
        self._ends: dict[str, int] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._readers: dict[str, frozenset[str]] = {}
        """The topics of each group that shares messages, as of the last time that it was asked."""
        self._unasked: set[str] = set()
        """Groups that share messages and that the last sample did not ask."""
        self._asked = Asked()

    def end(self) -> None:
        """End `run`."""
        self._ended.set()

    async def run(self) -> None:
        """Take samples until the end. A sample that fails is missing in the charts."""
        while self._ring.count_max and not self._ended.is_set():
            try:
                await self.sample()
            except Exception as error:  # noqa: BLE001 - a bug must not end the history: the log gets the traceback
                _log.exception("a sample failed: %s", error)
            await self._rest((STEP_MS - self._store.clock.now_ms() % STEP_MS) / 1_000)

    async def sample(self) -> None:
        """Take a sample. A value that the store does not give is NaN."""
        asking = Asking(self._store, is_bounded=False)
        ends, names, kept = await asyncio.gather(self._queue_ends(asking), shared_names(asking), kept_offsets(asking))
        now_ms = self._store.clock.now_ms()
        seconds = (now_ms - self._before_ms) / 1_000
        groups = None if names is None else await self._groups(asking, ends, names, kept)
        self._put_topics(now_ms, seconds, ends, groups)
        if groups is not None:
            self._ring.put("group", now_ms, {group.name: _lag(group) for group in groups})
            if not asking.found_gaps:
                self._store.stills.put(now_ms, positions_of(groups))
        self._before_ms = now_ms

    async def _queue_ends(self, asking: Asking) -> dict[str, int]:
        """Return how many messages each topic has had."""
        listed = self._store.listed(ListQueuesRequest(page_size=PAGE_SIZE), lambda page: page.queues)
        queues, _ = await asking.first("queues", listed, QUEUES_READ_MAX)
        ends: dict[str, int] = {}
        for queue in queues:
            ends[queue.topic] = ends.get(queue.topic, 0) + queue.max_queue_offset
        return {topic: end for topic, end in ends.items() if not is_system_topic(topic)}

    async def _groups(
        self,
        asking: Asking,
        ends: Mapping[str, int],
        names: Sequence[str],
        kept: Mapping[str, list[ConsumerOffset]],
    ) -> list[GroupFacts]:
        """Return groups that have a place, some others, and all that keep offsets."""
        placed = set(self._ring.names("group"))
        others = [name for name in names if name not in placed]
        self._turn = (self._turn + NEW_GROUPS_ASKED) % max(len(others), 1)
        asked = [name for name in names if name in placed][: self._ring.count_max]
        asked += [*others[self._turn :], *others[: self._turn]][:NEW_GROUPS_ASKED]
        shared = await self._shared(asking, asked, {name: self._news(name, kept, ends) for name in asked})
        unasked = {*names} - {*shared}
        self._readers = {name: topics for name, topics in self._readers.items() if name in unasked}
        self._readers |= {name: frozenset(queue.topic for queue in one.queues) for name, one in shared.items()}
        self._unasked = unasked
        known = Known(shared, {name: offsets for name, offsets in kept.items() if name not in unasked})
        return await self._measured(asking, known.facts())

    def _news(self, name: str, kept: Mapping[str, Sequence[ConsumerOffset]], ends: Mapping[str, int]) -> Hashable:
        """Return the state of a group that shares messages that a sample has before it asks for the group."""
        topics = sorted(self._readers.get(name, ()))
        return tuple(kept.get(name, ())), tuple((topic, ends.get(topic)) for topic in topics)

    async def _shared(
        self, asking: Asking, names: Sequence[str], news: Mapping[str, Hashable]
    ) -> dict[str, ShareGroup]:
        """Return groups that share messages. They are asked in parts with rests between, unless they are still."""
        now_s = self._store.clock.monotonic_s()
        still, answers = self._asked.still(names, news, now_s), dict[str, ShareGroup]()
        left = [name for name in names if name not in still]
        count = max(GROUPS_OF_A_PART, math.ceil(len(left) / PART_COUNT_MAX))
        for first in range(0, len(left), count):
            if first:
                await self._rest(REST_S)
            part = await each(left[first : first + count], lambda name: shared_group(asking, name))
            answers |= {name: group for name, group in part if group is not None}
        self._asked.put(answers, news, now_s)
        return still | answers

    async def _rest(self, seconds: float) -> None:
        """Wait, at most until the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    async def _measured(self, asking: Asking, groups: list[GroupFacts]) -> list[GroupFacts]:
        """Return groups with the bytes and seconds of their lag, as far as a sample asks for them."""
        left, found, now_s = MEASURED_QUEUES_MAX, [], self._store.clock.now_ms() / 1_000
        measurements: dict[tuple[str, GroupQueue], tuple[int | None, float]] = {}
        placed = set(self._ring.names("group"))
        for group in groups:
            queues = tuple(self._remeasured(group.name, queue, now_s) for queue in group.queues)
            missing = sum(queue.lag_bytes is None for queue in queues)
            if missing and missing <= left and group.name in placed:
                left -= missing
                queues = await measured(asking, queues)
            for before, queue in zip(group.queues, queues, strict=True):
                if before.lag_bytes is None and queue.lag_s is not None:
                    measurements[group.name, before] = (queue.lag_bytes, now_s - queue.lag_s)
            found.append(replace(group, queues=queues))
        self._measurements = measurements
        return found

    def _remeasured(self, group: str, queue: GroupQueue, now_s: float) -> GroupQueue:
        """Return a queue with its lag, if neither its end nor the position has moved since it was measured."""
        known = self._measurements.get((group, queue))
        return queue if known is None else replace(queue, lag_bytes=known[0], lag_s=max(now_s - known[1], 0.0))

    def _put_topics(self, now_ms: int, seconds: float, ends: dict[str, int], groups: list[GroupFacts] | None) -> None:
        """Put the rates since the last sample: of messages that came, and of the progress of all groups."""
        is_next = 0 < seconds < 3 * STEP_MS / 1_000
        positions: dict[tuple[str, str], int] = {}
        for group in groups or ():
            for queue in group.queues:
                place = (group.name, queue.topic)
                positions[place] = positions.get(place, 0) + queue.queue_offset
        went = self._went(positions) if groups is not None else {}
        rates = {}
        for topic, end in ends.items():
            came = max(end - self._ends.get(topic, end), 0)
            out = went.get(topic, math.nan) / seconds if is_next else math.nan
            rates[topic] = (came / seconds if is_next else math.nan, out)
        self._ring.put("topic", now_ms, rates)
        self._ends, self._positions = ends, positions

    def _went(self, positions: Mapping[tuple[str, str], int]) -> dict[str, float]:
        """Return how far all groups went forward in each topic, NaN where the progress of a group is not known.

        A topic in which no group has a position is left out: its readers are not known.
        """
        went: dict[str, float] = {}
        for (group_name, topic), position in positions.items():
            before = self._positions.get((group_name, topic))
            went[topic] = went.get(topic, 0) + (max(position - before, 0) if before is not None else math.nan)
        if any(name not in self._readers for name in self._unasked):
            return {}
        return went | dict.fromkeys((topic for name in self._unasked for topic in self._readers[name]), math.nan)


def positions_of(groups: Iterable[GroupFacts]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the sums of the offsets and of the ends of all queues, by group and topic."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for group in groups:
        for queue in group.queues:
            position, end = sums.get((group.name, queue.topic), (0, 0))
            sums[group.name, queue.topic] = (position + queue.queue_offset, end + queue.end_queue_offset)
    return sums


def _lag(group: GroupFacts) -> tuple[float, float, float]:
    """Return the lag of a group as a sample."""
    lag = lag_of(group.queues)
    seconds = lag.seconds if lag.seconds is not None else 0.0 if not lag.messages else math.nan
    return lag.messages, math.nan if lag.bytes is None else lag.bytes, seconds
