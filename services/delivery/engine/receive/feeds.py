# SPDX-License-Identifier: Apache-2.0
"""Feeds: the feed of each queue of a topic for a group, from the group's position on.

Invariant: a feed reads with the union of the filters in use; when that or the position changes, the feed begins anew.
Callers: the event loop's thread, a single receive at a time.
"""

from collections.abc import Iterable, Sequence

from libs.formats.records.delivery_record import Place, Took
from libs.machine.uninterrupted import uninterrupted
from services.delivery.engine.ports.index import Index
from services.delivery.engine.receive.feed import Feed, FeedFailure, ReadAhead
from services.delivery.engine.receive.filters import Filters
from services.delivery.engine.receive.news import News
from services.delivery.engine.receive.queue_begins import QueueBegins
from services.delivery.engine.state.groups import Groups


class Feeds:
    """The feeds of a group and topic. `stop` them in the end."""

    def __init__(
        self,
        groups: Groups,
        index: Index,
        filters: Filters,
        news: News,
        begins: QueueBegins,
        read_ahead: ReadAhead,
    ) -> None:
        self._groups, self._index, self._filters, self._news = groups, index, filters, news
        self._begins, self._read_ahead = begins, read_ahead
        self._feeds: dict[int, Feed] = {}
        self._is_stopped = False

    @property
    def size_bytes(self) -> int:
        """Size of the messages that are read ahead."""
        return sum(feed.size_bytes for feed in self._feeds.values())

    @property
    def has_messages(self) -> bool:
        """Whether a feed has a message ready."""
        return any(feed.peek() is not None for feed in self._feeds.values())

    def failure(self, queue_id: int) -> FeedFailure | None:
        """Return why no new message of a queue can be read, None if reading works."""
        feed = self._feeds.get(queue_id)
        return None if feed is None or (error := feed.error) is None else FeedFailure(error, feed.next)

    async def of_queue(self, queue_id: int) -> Feed | None:
        """Return the feed of a queue from the group's position on. None after `stop`, and if the group was deleted.

        Raises RequestRefused if the index refuses the filters of the members.
        """
        place, wanted = Place(self._filters.group, self._filters.topic, queue_id), self._filters.union
        if (feed := self._feeds.get(queue_id)) is not None and feed.peek() is not None:
            feed.drop_below(await self._begins.of(queue_id))
        feed, queue = self._feeds.get(queue_id), self._groups.find(place)
        if feed is not None and feed.failure is not None:
            await self.drop([queue_id])
            raise feed.failure
        if feed is not None and queue is not None and (feed.wanted != wanted or feed.next < queue.next):
            await self.drop([queue_id])
            feed, queue = None, self._groups.find(place)
        if self._is_stopped or queue is None:
            return None
        if feed is None:
            feed = Feed(
                self._index,
                place.topic,
                queue_id,
                queue.next,
                wanted=wanted,
                ahead=self._read_ahead,
                on_news=self._news.tell,
                on_begin=self._begins.note,
            )
            self._feeds[queue_id] = feed
            feed.start()
        return feed

    async def drop(self, queue_ids: Iterable[int]) -> None:
        """Drop the messages that were read ahead of queues. From the call on, no receive gets them."""
        feeds = [feed for queue_id in queue_ids if (feed := self._feeds.pop(queue_id, None)) is not None]
        if feeds:
            await uninterrupted(_stop_all(feeds))

    async def stop(self) -> None:
        """Stop all feeds, for good."""
        self._is_stopped = True
        await self.drop(list(self._feeds))

    def skipped(self) -> list[Took]:
        """Return events that move the group past messages that pass no filter in use.

        A feed that began before the filters changed may have passed messages of a new filter: it moves no queue.
        """
        events: list[Took] = []
        for queue_id, feed in self._feeds.items():
            queue = self._groups.find(Place(self._filters.group, self._filters.topic, queue_id))
            is_empty = feed.peek() is None and feed.wanted == self._filters.union
            if queue is not None and is_empty and feed.next > queue.next:
                events.append(Took(queue.place, feed.next, ()))
        return events


async def _stop_all(feeds: Sequence[Feed]) -> None:
    for feed in feeds:
        await feed.stop()
