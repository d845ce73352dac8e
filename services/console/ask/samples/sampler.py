# SPDX-License-Identifier: Apache-2.0
"""Sampler: asks for the progress of topics and groups every 10 s, and puts it into the history in memory."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from reput.indexer.v1.queue_service_pb2 import ListQueuesRequest
from reput_client import ConsumerOffset, ShareGroup
from reput_client.core.call import PAGE_SIZE

from libs.formats.state.system_topics import is_system_topic
from services.console.ask.groups import Known, kept_groups, measured, offsets_in, shared_group, shared_names
from services.console.ask.samples.asked import Answer, Asked
from services.console.ask.samples.moved import Moved, Sums, aged, sums_of
from services.console.ask.store import Asking, Store, each
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
        self._ends: dict[str, int] = {}
        self._kept_groups: list[Any] = []
        self._kept: dict[str, list[ConsumerOffset]] = {}
        self._groups: dict[str, Moved] = {}
        """The groups of the last sample, as of the time that they moved last."""
        self._sums: dict[tuple[str, str], Sums] = {}
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
        ends, names, kept = await asyncio.gather(self._queue_ends(asking), shared_names(asking), self._offsets(asking))
        now_ms = self._store.clock.now_ms()
        seconds = (now_ms - self._before_ms) / 1_000
        is_known = names is not None
        self._groups = await self._moved(asking, ends, names, kept) if names is not None else {}
        sums = sums_of(self._groups)
        self._put_topics(now_ms, seconds, ends, sums if is_known else None)
        if is_known:
            now_s = self._store.clock.monotonic_s()
            self._ring.put("group", now_ms, {name: group.lag_at(now_s) for name, group in self._groups.items()})
            if not asking.found_gaps:
                self._store.stills.put(now_ms, sums)
        self._before_ms, self._ends, self._sums = now_ms, ends, sums

    async def _queue_ends(self, asking: Asking) -> dict[str, int]:
        """Return how many messages each topic has had."""
        listed = self._store.listed(ListQueuesRequest(page_size=PAGE_SIZE), lambda page: page.queues)
        queues, _ = await asking.first("queues", listed, QUEUES_READ_MAX)
        ends: dict[str, int] = {}
        for queue in queues:
            ends[queue.topic] = ends.get(queue.topic, 0) + queue.max_queue_offset
        return {topic: end for topic, end in ends.items() if not is_system_topic(topic)}

    async def _offsets(self, asking: Asking) -> dict[str, list[ConsumerOffset]]:
        """Return the offsets of the groups that keep offsets, converted only if an answer differs from the last one."""
        groups = await kept_groups(asking)
        if groups != self._kept_groups:
            self._kept_groups, self._kept = groups, offsets_in(groups)
        return self._kept

    async def _moved(
        self,
        asking: Asking,
        ends: Mapping[str, int],
        names: Sequence[str],
        kept: Mapping[str, list[ConsumerOffset]],
    ) -> dict[str, Moved]:
        """Return groups that have a place, some others, and all that keep offsets."""
        placed = set(self._ring.names("group"))
        others = [name for name in names if name not in placed]
        self._turn = (self._turn + NEW_GROUPS_ASKED) % max(len(others), 1)
        asked = [name for name in names if name in placed][: self._ring.count_max]
        asked += [*others[self._turn :], *others[: self._turn]][:NEW_GROUPS_ASKED]
        shared = await self._shared(asking, asked, {name: self._news(name, kept, ends) for name in asked})
        unasked = {*names} - {*shared}
        self._readers = {name: topics for name, topics in self._readers.items() if name in unasked}
        self._readers |= {name: frozenset(queue.topic for queue in one.group.queues) for name, one in shared.items()}
        self._unasked = unasked
        return await self._measured(asking, shared, {name: one for name, one in kept.items() if name not in unasked})

    def _news(self, name: str, kept: Mapping[str, Sequence[ConsumerOffset]], ends: Mapping[str, int]) -> Hashable:
        """Return the state of a group that shares messages that a sample has before it asks for the group."""
        topics = sorted(self._readers.get(name, ()))
        return tuple(kept.get(name, ())), tuple((topic, ends.get(topic)) for topic in topics)

    async def _shared(self, asking: Asking, names: Sequence[str], news: Mapping[str, Hashable]) -> dict[str, Answer]:
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
        return still | self._asked.put(answers, news, now_s)

    async def _rest(self, seconds: float) -> None:
        """Wait, at most until the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    async def _measured(
        self, asking: Asking, shared: Mapping[str, Answer], kept: Mapping[str, list[ConsumerOffset]]
    ) -> dict[str, Moved]:
        """Return groups with the bytes and seconds of their lag, as far as a sample asks for them."""
        left, found, placed = MEASURED_QUEUES_MAX, dict[str, Moved](), set(self._ring.names("group"))
        known = Known({name: answer.group for name, answer in shared.items()}, dict(kept))
        now_s = self._store.clock.monotonic_s()
        for name in sorted({*shared, *kept}):
            state, before = (shared.get(name), kept.get(name)), self._groups.get(name)
            if before is not None and before.state == state and not before.missing_count:
                found[name] = before
                continue
            answer, unmeasured = state[0], known.fact(name).queues
            queues = unmeasured if answer is None else aged(unmeasured, now_s - answer.asked_s)
            queues = queues if before is None else before.measured(queues, now_s)
            missing = sum(queue.lag_bytes is None for queue in queues)
            if missing and missing <= left and name in placed:
                left -= missing
                queues = await measured(asking, queues)
            found[name] = Moved(state, queues, now_s, unmeasured)
        return found

    def _put_topics(
        self, now_ms: int, seconds: float, ends: Mapping[str, int], sums: Mapping[tuple[str, str], Sums] | None
    ) -> None:
        """Put the rates since the last sample: of messages that came, and of the progress of all groups."""
        is_next = 0 < seconds < 3 * STEP_MS / 1_000
        went = self._went(sums) if sums is not None else {}
        rates = {}
        for topic, end in ends.items():
            came = max(end - self._ends.get(topic, end), 0)
            out = went.get(topic, math.nan) / seconds if is_next else math.nan
            rates[topic] = (came / seconds if is_next else math.nan, out)
        self._ring.put("topic", now_ms, rates)

    def _went(self, sums: Mapping[tuple[str, str], Sums]) -> dict[str, float]:
        """Return how far all groups went forward in each topic, NaN where the progress of a group is not known.

        A topic in which no group has a position is left out: its readers are not known.
        """
        went: dict[str, float] = {}
        for place, (position, _) in sums.items():
            before = self._sums.get(place)
            went[place[1]] = went.get(place[1], 0) + (max(position - before[0], 0) if before is not None else math.nan)
        if any(name not in self._readers for name in self._unasked):
            return {}
        return went | dict.fromkeys((topic for name in self._unasked for topic in self._readers[name]), math.nan)
