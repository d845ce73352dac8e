# SPDX-License-Identifier: Apache-2.0
"""Subscriptions: the subscriptions of all groups that receive now.

A subscription without a receive for IDLE_S is closed. When more is read ahead than allowed, the subscriptions that
were idle longest are closed first.
Callers: the event loop's thread. Memory: `subscription_count_max` subscriptions and the messages that they read ahead.
"""

import asyncio
from collections.abc import Collection
from functools import partial

from libs.formats.records.delivery_record import Place
from libs.machine.clock import Clock
from libs.requests.errors import WindowFull
from services.delivery.config import DeliveryConfig
from services.delivery.engine.dead_letters.writer import DeadLetterWriter
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.receive.feed import FeedFailure, ReadAhead
from services.delivery.engine.receive.filters import AllFilters
from services.delivery.engine.receive.subscription import Subscription
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.holders import Holders
from services.delivery.engine.state.tally import Tally
from services.delivery.errors import JournalLost

ASKED_S = 10.0
"""Longer than a member that waits takes to look again: TOPIC_LOOK_S and a pause."""
IDLE_S = 15.0
"""A subscription is closed after this time without a receive. Members that wait look again each TOPIC_LOOK_S."""


class Subscriptions:
    """The subscriptions of an ownership, by group and topic. `stop` them in the end."""

    def __init__(
        self,
        groups: Groups,
        index: Index,
        journal: Journal,
        tally: Tally,
        dead_letter_writer: DeadLetterWriter,
        clock: Clock,
        time: GroupTime,
        config: DeliveryConfig,
    ) -> None:
        self.filters = AllFilters(groups, index, clock)
        self.read_ahead = ReadAhead()
        self.holders = Holders()
        self._groups, self._journal, self._clock, self._time = groups, journal, clock, time
        self._count_max = config.subscription_count_max
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._is_stopped = False
        self._make = partial(
            Subscription,
            groups,
            index,
            journal,
            tally,
            dead_letter_writer,
            clock,
            time,
            read_ahead=self.read_ahead,
            holders=self.holders,
            open_count_max=config.open_count_max,
            queue_open_count_max=config.queue_open_count_max,
        )

    def find(self, group: str, topic: str) -> Subscription | None:
        """Return an open subscription."""
        return self._subscriptions.get((group, topic))

    def open(self, group: str, topic: str) -> Subscription:
        """Return the subscription of a group to a topic, and open it if needed.

        Raises JournalLost after `stop`, and WindowFull if too many are open.
        """
        if self._is_stopped:  # nothing would stop its feeds
            raise JournalLost("deliveries begin anew")
        subscription = self._subscriptions.get((group, topic))
        if subscription is None:
            if len(self._subscriptions) >= self._count_max:
                raise WindowFull("groups that receive from topics", limit=self._count_max)
            subscription = self._make(self.filters.of(group, topic))
            self._subscriptions[group, topic] = subscription
        return subscription

    def of_group(self, group: str) -> list[Subscription]:
        """Return the open subscriptions of a group."""
        return [subscription for (name, _), subscription in self._subscriptions.items() if name == group]

    def wake(self, group: str, topic: str) -> None:
        """Wake a member that waits."""
        if (subscription := self.find(group, topic)) is not None:
            subscription.news.tell()

    def failure(self, place: Place) -> FeedFailure | None:
        """Return why no new message of a queue can be read, None if reading works."""
        subscription = self.find(place.group, place.topic)
        return None if subscription is None else subscription.feeds.failure(place.queue_id)

    def is_asked(self, group: str, topic: str) -> bool:
        """Return whether a member asks for messages, or asked within ASKED_S."""
        subscription = self.find(group, topic)
        return subscription is not None and self._clock.monotonic_s() - subscription.used_s < ASKED_S

    def forget(self, group: str) -> None:
        """Remove a deleted group's subscriptions and filters. The caller stops the subscriptions."""
        self._subscriptions = {key: found for key, found in self._subscriptions.items() if key[0] != group}
        self.filters.forget(group)

    async def stop(self) -> None:
        """Stop all subscriptions; no other can be opened."""
        self._is_stopped = True
        await stop_all(list(self._subscriptions.values()))

    async def run_maintenance(self) -> None:
        """Close idle subscriptions, and move queues past messages that no filter lets through."""
        now_s = self._clock.monotonic_s()
        for key in self.filters.look(self._time.now_ms(), self._subscriptions):
            self.wake(*key)
        for subscription in list(self._subscriptions.values()):
            if subscription.is_busy:
                continue
            if now_s - subscription.used_s > IDLE_S:
                await self._close(subscription)
            elif events := subscription.skipped():
                for event in events:
                    self._groups.apply(event)
                self._journal.write(events, is_safe=False)
        for subscription in sorted(self._subscriptions.values(), key=lambda found: found.used_s):
            if not self.read_ahead.is_enough:
                break
            if subscription.held_bytes and not subscription.is_busy:
                await self._close(subscription)

    async def _close(self, subscription: Subscription) -> None:
        key = subscription.group, subscription.topic
        if self._subscriptions.get(key) is subscription:  # otherwise it was closed during a wait, and opened anew
            del self._subscriptions[key]
        await subscription.stop()


async def stop_all(subscriptions: Collection[Subscription]) -> None:
    """Stop subscriptions side by side."""
    await asyncio.gather(*(subscription.stop() for subscription in subscriptions))
