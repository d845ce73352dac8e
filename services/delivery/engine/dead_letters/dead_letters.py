# SPDX-License-Identifier: Apache-2.0
"""DeadLetters: counts, lists and replays the dead letters of groups.

A letter is done when its group has settled it, like any message: it was replayed, or the group received it. A replayed
message and the event that settles its letter are written together: the log has both or neither.
Invariants: a letter is checked and settled without a wait in between, so that only a single replay appends it.
Callers: the event loop's thread. Memory: a batch of letters for each call.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

from msgspec import Struct, field

from libs.formats.records.delivery_record import Event, Place, Settled, Took
from libs.requests.errors import WindowFull
from services.delivery.engine.dead_letters.selection import Selection, Stretch, bounds_of, read, stretches
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.log import Log
from services.delivery.engine.ports.messages import Found, Replayed
from services.delivery.engine.state.dead_letter_topic import dead_letter_topic
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.queue import QueueState
from services.delivery.engine.state.tally import Tally

BATCH_COUNT = 100
REPORT_INTERVAL_S = 0.5
PAGE_SIZE_BYTES = 4 << 20
PAGE_READ_COUNT_MAX = 50
"""Reads for a page: a condition may let few letters through, so a page may be shorter than the caller's limit."""
AHEAD_COUNT_MAX = 100_000
"""Dead letters of a queue that are done before earlier letters; some 100 bytes each."""
PAUSES_PER_S = 4
"""How often a replay with a limit appends per second."""

NO_ORIGIN = "the letter does not tell where it came from"


class ReplayedTopic(Struct):
    """The outcomes of the letters with the same original topic."""

    replayed_count: int = 0
    refused_count: int = 0
    refusal: str = ""


class Replay(Struct):
    """The progress of a replay."""

    total_count: int = 0
    passed_count: int = 0
    done_before_count: int = 0
    topics: dict[str, ReplayedTopic] = field(default_factory=dict)
    is_done: bool = False

    @property
    def replayed_count(self) -> int:
        """Letters that were replayed, or would be replayed in a dry run."""
        return sum(topic.replayed_count for topic in self.topics.values())

    def of(self, topic: str) -> ReplayedTopic:
        """Return the outcomes of a topic's letters. The caller adds to them."""
        return self.topics.setdefault(topic, ReplayedTopic())


class DeadLetters:
    """The dead letters of the groups of an ownership. `begin` gives a group a position in each queue of a topic."""

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        tally: Tally,
        log: Log,
        index: Index,
        begin: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._groups, self._journal, self._tally = groups, journal, tally
        self._log, self._index = log, index
        self._begin = begin

    async def count(self, group: str) -> int:
        """Return how many letters of a group are not done. Raises DependencyUnavailable."""
        topic, total = dead_letter_topic(group), 0
        for queue_id, (least, most) in (await bounds_of(self._index, topic)).items():
            queue = self._groups.find(Place(group, topic, queue_id))
            total += most - least if queue is None else queue.unsettled_count(least, most)
        return total

    async def page(
        self, group: str, selection: Selection, after: tuple[int, int], count: int
    ) -> tuple[list[Found], tuple[int, int] | None]:
        """Return letters that are not done, from a queue and offset on, and where the next page begins, or None.

        Raises DependencyUnavailable.
        """
        topic, letters, size_bytes, read_count = dead_letter_topic(group), list[Found](), 0, 0
        for stretch in await stretches(self._index, topic, selection):
            queue_id = stretch.queue_id
            stretch.position = max(stretch.position, after[1] if queue_id == after[0] else 0)
            while stretch.count and queue_id >= after[0]:
                if len(letters) >= count or size_bytes >= PAGE_SIZE_BYTES or read_count >= PAGE_READ_COUNT_MAX:
                    return letters, (queue_id, stretch.position)
                found = await read(self._index, topic, stretch, selection.where, count - len(letters))
                read_count += 1
                queue = self._groups.find(Place(group, topic, queue_id))
                letters += [one for one in found if queue is None or not queue.is_settled(one.queue_offset)]
                size_bytes += sum(one.size_bytes for one in found)
        return letters, None

    async def replay(
        self, group: str, selection: Selection, *, per_second_max: int, count_max: int, is_dry_run: bool
    ) -> AsyncGenerator[Replay, None]:
        """Append letters to their original topics. Yields the progress at REPORT_INTERVAL_S, and at the end.

        0 is no limit. Raises DependencyUnavailable, WindowFull and the journal's failure. Then the letters of the last
        progress are replayed, and further letters may be; another call continues.
        """
        topic, clock = dead_letter_topic(group), asyncio.get_running_loop().time
        meant = await stretches(self._index, topic, selection)
        replay, refusals = Replay(total_count=sum(one.count for one in meant)), dict[str, str]()
        start_s = told_s = clock()
        batch_count = min(BATCH_COUNT, max(1, per_second_max // PAUSES_PER_S)) if per_second_max else BATCH_COUNT
        if meant and not is_dry_run:
            await self._begin(group, topic)
        for stretch in meant:
            while stretch.count:
                room = min(batch_count, count_max - replay.replayed_count) if count_max else batch_count
                if not room:
                    break
                before = stretch.position
                found = await read(self._index, topic, stretch, selection.where, room)
                for one in {one.origin_topic for one in found} - refusals.keys():
                    refusals[one] = await self._log.refusal(one) if one else NO_ORIGIN
                await self._replay_some(
                    Place(group, topic, stretch.queue_id), stretch, found, replay, refusals, is_dry_run
                )
                replay.passed_count += stretch.position - before
                if clock() - told_s >= REPORT_INTERVAL_S:
                    told_s = clock()
                    yield replay
                if per_second_max and not is_dry_run:
                    await asyncio.sleep(start_s + replay.replayed_count / per_second_max - clock())
        replay.is_done = True
        yield replay

    async def _replay_some(
        self,
        place: Place,
        stretch: Stretch,
        found: Sequence[Found],
        replay: Replay,
        refusals: Mapping[str, str],
        is_dry_run: bool,
    ) -> None:
        """Replay the letters that are not done and not refused, in a single append, and add to the progress."""
        queue = self._groups.find(place)
        chosen = [one for one in found if queue is None or _is_untouched(queue, one.queue_offset)]
        replay.done_before_count += len(found) - len(chosen)
        taken = [one for one in chosen if not refusals[one.origin_topic]]
        if taken and not is_dry_run:
            await self._write(place, stretch.least, taken)
        for one in chosen:
            topic = replay.of(one.origin_topic)
            topic.refusal = refusals[one.origin_topic]
            topic.refused_count += bool(topic.refusal)
            topic.replayed_count += not topic.refusal

    async def _write(self, place: Place, least: int, letters: Sequence[Found]) -> None:
        """Append letters to their original topics and settle them, in the same append. `least`: begin of the queue."""
        queue = self._groups.find(place)
        is_ahead = queue is not None and letters[0].queue_offset > max(queue.next, least)
        if queue is not None and is_ahead and queue.ahead_count >= AHEAD_COUNT_MAX:
            raise WindowFull(
                f"letters of {place.topic}/{place.queue_id} done before earlier ones", limit=AHEAD_COUNT_MAX
            )
        events: list[Event] = [Settled(place, tuple(one.queue_offset for one in letters))]
        if queue is None or queue.next < least:
            events.insert(0, Took(place, least, ()))
        for event in events:
            self._groups.apply(event)
        await self._journal.write(events, [Replayed(one) for one in letters], is_safe=True)
        self._tally.replayed_count += len(letters)


def _is_untouched(queue: QueueState, offset: int) -> bool:
    """Return whether a letter was neither received nor replayed."""
    return not queue.is_settled(offset) and not queue.is_open(offset)
