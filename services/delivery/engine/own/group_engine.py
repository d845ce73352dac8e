# SPDX-License-Identifier: Apache-2.0
"""GroupEngine: serves receives, settlements and questions about groups while this process owns the journal.

Callers: the event loop's thread. Memory: that of the groups, at most `open_count_max` messages in flight or held, and
that of the feeds of groups that receive.
"""

import asyncio
import logging

from libs.formats.records.delivery_record import Moved, Place, Policy, PolicySet, TimeBehind
from libs.machine.clock import STEP_MS, Clock
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import WindowFull
from services.delivery.config import DeliveryConfig
from services.delivery.engine.dead_letters.dead_letters import DeadLetters
from services.delivery.engine.dead_letters.writer import DeadLetterWriter
from services.delivery.engine.delays.delays import Delays
from services.delivery.engine.delays.levels import DelayLevels
from services.delivery.engine.delays.queries import DelayQueries
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.own.lags import Lags
from services.delivery.engine.own.message_states import MessageStates
from services.delivery.engine.own.published import PublishedState
from services.delivery.engine.ports.halves import HalfIndex
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.levels import LevelIndex
from services.delivery.engine.ports.log import Log
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.ports.shards import Shards
from services.delivery.engine.ports.timers import TimerIndex
from services.delivery.engine.receive.batch import SIZE_BYTES_MAX, Delivered
from services.delivery.engine.receive.parents import ParentQueues
from services.delivery.engine.receive.positions import HOLD_LOOK_S, TOPIC_LOOK_S, Positions
from services.delivery.engine.receive.sealed_queues import SealedQueues
from services.delivery.engine.receive.settling import Settling
from services.delivery.engine.receive.subscription import Subscription
from services.delivery.engine.receive.subscriptions import Subscriptions, stop_all
from services.delivery.engine.state.attempts import Attempt, Attempts
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.repeats import Repeats
from services.delivery.engine.state.tally import Tally
from services.delivery.engine.transactions.transactions import Transactions
from services.delivery.errors import GroupNotFound, JournalLost

STORE_INTERVAL_S = 5.0
"""The positions of groups are published to the Indexer at this interval."""

_log = logging.getLogger(__name__)


class GroupEngine:
    """The engine of an ownership. `run_maintenance` about once a second; `stop` it in the end."""

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        tally: Tally,
        repeats: Repeats,
        *,
        log: Log,
        index: Index,
        halves: HalfIndex,
        timers: TimerIndex,
        levels: LevelIndex,
        shards: Shards,
        clock: Clock,
        config: DeliveryConfig,
    ) -> None:
        self.groups = groups
        self._journal, self._clock, self._config = journal, clock, config
        time = GroupTime(journal.time, groups)
        journal.time.on_jump = self._jumped
        self.delays = Delays(groups.delays, journal, tally, timers, clock, config)
        self.delay_queries = DelayQueries(self.delays, clock)
        self.delay_levels = DelayLevels(config.delay_levels_ms(), groups, journal, tally, index=index, levels=levels)
        self.transactions = Transactions(journal, tally, log=log, halves=halves, time=journal.time, config=config)
        self.sealed_queues = SealedQueues(groups, log, index, halves, clock)
        parents = ParentQueues(self.sealed_queues, shards, clock)
        self.positions = Positions(groups, journal, log, index, parents, clock, config)
        self.dead_letter_writer = DeadLetterWriter(
            groups, journal, tally, index, time, lambda place: self.subscriptions.wake(place.group, place.topic)
        )
        self.dead_letters = DeadLetters(groups, journal, tally, log, index, self.positions.begin)
        self.subscriptions = Subscriptions(groups, index, journal, tally, self.dead_letter_writer, clock, time, config)
        self.settling = Settling(groups, journal, tally, repeats, time, self.dead_letter_writer, self.subscriptions)
        self.lags = Lags(
            groups,
            self.positions,
            index,
            clock,
            time,
            self.subscriptions.failure,
            self.subscriptions.is_asked,
            config.queue_open_count_max,
        )
        self.message_states = MessageStates(
            groups, time, self.subscriptions.holders, self.dead_letter_writer.is_under_way
        )
        self.published = PublishedState(groups, index, self.dead_letter_writer)
        self._published_s = clock.monotonic_s()
        self._attempts = Attempts(clock)
        self._is_stopped = False

    async def start(self) -> None:
        """Read the open transactions, and start the tasks that need no calls. Raises DependencyUnavailable."""
        await self.transactions.load()
        self.delays.start()
        self.delay_levels.start()
        self.transactions.start()
        self.dead_letter_writer.start()

    async def stop(self) -> None:
        """Stop reading ahead, and end the receives that wait."""
        self._is_stopped = True
        await self.dead_letter_writer.stop()
        await self.transactions.stop()
        await self.delays.stop()
        await self.delay_levels.stop()
        await self.subscriptions.stop()
        await self.positions.parents.stop()

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        count: int,
        invisible_ms: int | None,
        wanted: Wanted,
        wait_s: float,
        size_bytes: int = SIZE_BYTES_MAX,
        attempt_id: str = "",
        connection_number: int = 0,
    ) -> list[Delivered]:
        """Return messages that are the caller's for `invisible_ms`; wait for the first message.

        A receive that is repeated with its `attempt_id` gets its messages again while they are still its own. Messages
        of a caller that is gone are due again at once. Only the last message may exceed `size_bytes`. Raises
        TopicNotFound, WindowFull while too many messages are in flight, and JournalLost when this ownership has ended.
        """
        if self.groups.open_count >= self._config.open_count_max:
            raise WindowFull("messages in flight", limit=self._config.open_count_max)
        invisible_ms = self.groups.policy(group).invisible_ms if invisible_ms is None else invisible_ms
        deadline_s = _now_s() + wait_s
        attempt = Attempt(group, topic, attempt_id)
        if handles := self._attempts.handles(attempt):
            again = await (await self._subscription(group, topic)).repeat(handles, invisible_ms)
            if again:
                self._attempts.note(attempt, [message.handle for message in again])
                return again
        was_woken = False
        try:
            while not self._is_stopped:
                subscription = await self._subscription(group, topic)
                queue_ids = await self.positions.begun(group, topic)
                taken = await subscription.take(
                    count,
                    size_bytes,
                    invisible_ms=invisible_ms,
                    wanted=wanted,
                    queue_ids=queue_ids,
                    connection_number=connection_number,
                )
                was_woken = False
                if taken and attempt_id:
                    self._attempts.note(attempt, [message.handle for message in taken])
                left_s = deadline_s - _now_s()
                if taken or left_s <= 0:
                    return taken
                was_woken = await self._wait(subscription, wanted, left_s)
        except BaseException:
            if was_woken:
                self.subscriptions.wake(group, topic)
            raise
        raise JournalLost("deliveries begin anew")

    async def wait(self, group: str, topic: str, wanted: Wanted, left_s: float) -> bool:
        """Wait at most `left_s` for a message, or for the end of this ownership.

        Returns whether the caller was woken for a message: then it receives, or wakes another member.
        """
        subscription = await self._subscription(group, topic)
        return not self._is_stopped and await self._wait(subscription, wanted, left_s)

    async def set_policy(self, group: str, policy: Policy | None) -> None:
        """Set the policy of a group; None deletes the group. Raises GroupNotFound for an unknown group to delete.

        Raises WindowFull when too many groups are known, and the journal's failure.
        """
        if policy is None and not self.groups.is_known(group):
            await self._journal.write([], is_safe=True)  # the deletion of a moment ago may not be durable yet
            raise GroupNotFound(group)
        if not self.groups.is_known(group):
            self.positions.check_room(1)
        event = PolicySet(group, policy)
        self.groups.apply(event)
        written = self._journal.write([event], is_safe=True)
        subscriptions = self.subscriptions.of_group(group)
        if policy is None:
            self._forget(group)  # before any wait, in which the group may begin anew
            await uninterrupted(stop_all(subscriptions))
        for subscription in subscriptions:
            subscription.news.tell_all()
        await written

    async def move(self, group: str, topic: str, positions: dict[int, int]) -> None:
        """Move a group to these queue offsets, by queue id. Messages in flight in these queues are settled.

        Raises TopicNotFound, WindowFull, DependencyUnavailable, and the journal's failure.
        """
        await self._subscription(group, topic)
        events = [Moved(Place(group, topic, queue_id), position) for queue_id, position in positions.items()]
        for event in events:
            self.groups.apply(event)
        written = self._journal.write(events, is_safe=True)
        subscription = self.subscriptions.find(group, topic)
        if subscription is not None:
            await subscription.feeds.drop(positions)
            subscription.news.tell_all()
        await written

    async def run_maintenance(self) -> None:
        """Close idle subscriptions, count delayed messages, and publish positions at their interval."""
        await self.subscriptions.run_maintenance()
        await self.delay_levels.run_maintenance()
        now_s = self._clock.monotonic_s()
        if now_s - self._published_s >= STORE_INTERVAL_S:
            self._published_s = now_s
            await self.published.publish()

    def _forget(self, group: str) -> None:
        """Forget a deleted group, in everything that is not made of events."""
        self.subscriptions.forget(group)
        self.positions.forget(group)
        self.published.forget(group)

    def _jumped(self, jump_ms: int) -> None:
        """Exclude a jump of the log's time from the times of deliveries, also for the next owner."""
        level = logging.WARNING if jump_ms > STEP_MS else logging.DEBUG  # clocks of two machines drift
        _log.log(level, "the log's time jumped ahead by %.1f s: deliveries end by time that passed", jump_ms / 1000)
        event = TimeBehind(self.groups.behind_ms + jump_ms)
        self.groups.apply(event)
        if self._journal.failure is None:
            self._journal.write([event], is_safe=False)

    async def _wait(self, subscription: Subscription, wanted: Wanted, left_s: float) -> bool:
        """Wait at most `left_s` for a message. Returns whether this member was woken for a message."""
        subscription.wake_when_due(wanted)
        has_holds = self.positions.held(subscription.group, subscription.topic)
        return await subscription.news.wait(wanted, min(left_s, HOLD_LOOK_S if has_holds else TOPIC_LOOK_S))

    async def _subscription(self, group: str, topic: str) -> Subscription:
        """Return the subscription of a group to a topic; each queue of the topic has a position or a hold then."""
        await self.positions.begin(group, topic)
        return self.subscriptions.open(group, topic)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
