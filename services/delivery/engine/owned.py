# SPDX-License-Identifier: Apache-2.0
"""Owned: what the process that delivers does for those who receive, settle and look, while it is the one.

Callers: the event loop's thread. Memory: that of the groups, at most `open_count_max` messages in flight or held, and
that of the feeds of groups that receive.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from libs.formats.records.delivery_record import (
    Event,
    Flight,
    Moved,
    Place,
    Policy,
    PolicySet,
    Postponed,
    Settled,
    TimeBehind,
)
from libs.machine.clock import STEP_MS, Clock
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import DependencyUnavailable, ServiceError, WindowFull
from services.delivery.config import DeliveryConfig
from services.delivery.engine.attempts import Attempt, Attempts
from services.delivery.engine.delays.asking import Asking
from services.delivery.engine.delays.delays import Delays
from services.delivery.engine.delays.ports import TimerIndex
from services.delivery.engine.feed import ReadAhead
from services.delivery.engine.journal import Journal
from services.delivery.engine.letters.burying import Burying
from services.delivery.engine.letters.letters import Letters
from services.delivery.engine.ports import Index, Log, Wanted, Written
from services.delivery.engine.positions import HOLD_LOOK_S, TOPIC_LOOK_S, Positions
from services.delivery.engine.receiving.all_filters import AllFilters
from services.delivery.engine.standing.lags import Lags, QueueLag
from services.delivery.engine.standing.standstill import FeedFailure
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.handle import Handle
from services.delivery.engine.state.queue import QueueState
from services.delivery.engine.state.repeats import Repeats
from services.delivery.engine.subscription import SIZE_BYTES_MAX, Delivered, Subscription
from services.delivery.engine.tally import Tally
from services.delivery.engine.times.group_time import GroupTime
from services.delivery.engine.transactions.ports import HalfIndex
from services.delivery.engine.transactions.transactions import Transactions
from services.delivery.errors import AppendRefused, GroupNotFound, HandleOutdated, JournalLost

IDLE_S = 15.0
"""After so long without a receive nothing is read ahead any more. Who waits looks again each TOPIC_LOOK_S."""
STORE_INTERVAL_S = 5.0
"""How often the groups' positions go to the index, where other tools look for them."""

Verb = Literal["ack", "nack", "extend", "terminate", "bury"]
FINAL: frozenset[Verb] = frozenset({"ack", "terminate", "bury"})
"""Verbs after which a message is settled."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to become of a message. `delay_ms` None: as the group's policy says."""

    handle: str
    verb: Verb
    delay_ms: int | None = None
    keeps_handle: bool = False
    """Of an `extend`: the handle fits as before."""
    is_untried: bool = False
    """Of a `nack`: the delivery does not count as an attempt."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a wish: an error, or the handle that the message has now, "" if it is settled."""

    error: ServiceError | None = None
    handle: str = ""


class Owned:
    """`stop` it in the end; `tend` it about once a second."""

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
        clock: Clock,
        config: DeliveryConfig,
    ) -> None:
        self.groups = groups
        self._tally = tally
        self._journal = journal
        self._log, self._index, self._clock, self._config = log, index, clock, config
        self._time = GroupTime(journal.time, groups)
        journal.time.on_jump = self._jumped
        self.delays = Delays(groups.delays, journal, tally, timers, clock, config)
        self.transactions = Transactions(journal, tally, log=log, halves=halves, time=self.delays.time, config=config)
        self.asking = Asking(self.delays, clock)
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self.filters = AllFilters(groups, index, clock)
        self._attempts, self._repeats = Attempts(clock), repeats
        self._settling: asyncio.Future[Written] | None = None
        """The last settled events on their way into the log, behind all others."""
        self.positions = Positions(groups, journal, log, index, clock, config)
        self._stored: dict[Place, int] = {}
        self._stored_policies: dict[str, Policy] = {}
        self._stored_s = clock.monotonic_s()
        self._is_over = False
        self.ahead = ReadAhead()
        self._lags = Lags(groups, self.positions, index, clock, self._time, self._failure, config.queue_open_count_max)
        self.burying = Burying(groups, journal, tally, index, self._time, self._wake)
        self.letters = Letters(groups, journal, tally, log, index, self.begin)

    async def start(self) -> None:
        """Read what is not in the journal, and begin with what nobody asks for. Raises DependencyUnavailable."""
        await self.transactions.load()
        self.delays.start()
        self.transactions.start()
        self.burying.start()

    async def stop(self) -> None:
        """Read nothing ahead any more, and let those who wait begin anew."""
        self._is_over = True
        await self.burying.stop()
        await self.transactions.stop()
        await self.delays.stop()
        for subscription in list(self._subscriptions.values()):
            await subscription.stop()

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
    ) -> list[Delivered]:
        """Return messages that are the caller's for `invisible_ms`; wait for the first one. Raises TopicNotFound.

        A receive that is repeated with its `attempt_id` gets those again that it was given and that still are its own.
        WindowFull while too many are in flight, JournalLost when it is not this object that delivers any more. Messages
        that the caller does not take any more come again at once. The last message may exceed `size_bytes`.
        """
        if self.groups.open_count >= self._config.open_count_max:
            raise WindowFull("messages in flight", limit=self._config.open_count_max)
        invisible_ms = self.groups.policy(group).invisible_ms if invisible_ms is None else invisible_ms
        deadline_s = _now_s() + wait_s
        attempt = Attempt(group, topic, attempt_id)
        if handles := self._attempts.handles(attempt):
            again = await (await self._subscription(group, topic)).repeat(handles, invisible_ms)
            if again:
                self._attempts.note(attempt, [one.handle for one in again])
                return again
        is_told = False
        try:
            while not self._is_over:
                subscription = await self._subscription(group, topic)
                queue_ids = self.positions.begun(group, topic, await self.positions.queue_count(topic))
                taken = await subscription.take(
                    count, size_bytes, invisible_ms=invisible_ms, wanted=wanted, queue_ids=queue_ids
                )
                is_told = False
                if taken and attempt_id:
                    self._attempts.note(attempt, [one.handle for one in taken])
                left_s = deadline_s - _now_s()
                if taken or left_s <= 0:
                    return taken
                is_told = await self._wait(subscription, wanted, left_s)
        except BaseException:
            if is_told:
                self.tell(group, topic)
            raise
        raise JournalLost("deliveries begin anew")

    async def wait(self, group: str, topic: str, wanted: Wanted, left_s: float) -> bool:
        """Wait until there may be something to receive, or this object delivers no more, at most so long.

        Returns whether the caller was told: then it receives, or calls `tell` for other members.
        """
        subscription = await self._subscription(group, topic)
        return not self._is_over and await self._wait(subscription, wanted, left_s)

    def tell(self, group: str, topic: str) -> None:
        """Let another member have a look."""
        subscription = self._subscriptions.get((group, topic))
        if subscription is not None:
            subscription.news.tell()

    async def begin(self, group: str, topic: str) -> None:
        """Give a group a position in each queue of a topic, where it has none. Raises TopicNotFound."""
        await self.positions.begin(group, topic)

    async def settle(self, wishes: Sequence[Wish]) -> list[Outcome]:
        """Do as it is wished, and return what became of each. What was done is as safe as the store makes it.

        A wish that is repeated because its answer was lost is answered as the first time, unless that is long ago.
        Raises why the journal can't be written: then nothing is done, which a repetition would find as done.
        """
        if self._journal.failure is not None:
            raise self._journal.failure
        outcomes: dict[int, Outcome] = {}
        events: list[Event] = []
        for index, wish in enumerate(wishes):
            if wish.verb != "bury":
                outcomes[index] = self._settle(wish, events)
        if events:
            self._settling = self._journal.write(events, is_safe=True)
        written = self._settling  # also of what is repeated here, whose first time may be on its way
        for index, wish in enumerate(wishes):  # which takes a while, and what was settled is on its way meanwhile
            if wish.verb == "bury":
                outcomes[index] = await self._bury(wish)
        if written is not None:
            await asyncio.shield(written)
        settled_count = sum(isinstance(event, Settled) for event in events)
        self._tally.settled_count += settled_count
        self._tally.postponed_count += len(events) - settled_count
        return [outcomes[index] for index in range(len(wishes))]

    async def set_policy(self, group: str, policy: Policy | None) -> None:
        """Give a group a policy, or forget the group. Raises GroupNotFound for one that is not known."""
        if policy is None and not self.groups.is_known(group):
            await self._journal.write([], is_safe=True)  # it may have been deleted a moment ago
            raise GroupNotFound(group)
        if not self.groups.is_known(group):
            self.positions.check_room(1)
        event = PolicySet(group, policy)
        self.groups.apply(event)
        written = self._journal.write([event], is_safe=True)
        subscriptions = [one for (name, _), one in self._subscriptions.items() if name == group]
        if policy is None:
            self._forget(group)  # before any wait, in which the group may begin anew
            await uninterrupted(_stop_all(subscriptions))
        for subscription in subscriptions:
            subscription.news.tell_all()
        await written

    def _forget(self, group: str) -> None:
        """Be done with all that is known of a group besides its events."""
        self._subscriptions = {key: one for key, one in self._subscriptions.items() if key[0] != group}
        self.filters.forget(group)
        self.positions.forget(group)
        self._stored = {place: offset for place, offset in self._stored.items() if place.group != group}

    async def move(self, group: str, topic: str, positions: dict[int, int]) -> None:
        """Let a group go on at these queue offsets, by queue id. What is in flight there is settled."""
        await self._subscription(group, topic)
        events = [Moved(Place(group, topic, queue_id), position) for queue_id, position in positions.items()]
        for event in events:
            self.groups.apply(event)
        written = self._journal.write(events, is_safe=True)
        subscription = self._subscriptions.get((group, topic))
        if subscription is not None:
            await subscription.move(positions)
            subscription.news.tell_all()
        await written

    def _jumped(self, jump_ms: int) -> None:
        """Exclude a jump of the log's time from the times of deliveries, also for the next process."""
        level = logging.WARNING if jump_ms > STEP_MS else logging.DEBUG  # clocks of two machines drift
        _log.log(level, "the log's time jumped ahead by %.1f s: deliveries end by time that passed", jump_ms / 1000)
        event = TimeBehind(self.groups.behind_ms + jump_ms)
        self.groups.apply(event)
        if self._journal.failure is None:
            self._journal.write([event], is_safe=False)

    async def lags(self, group: str) -> list[QueueLag]:
        """Return how far a group is, by topic and queue. Raises GroupNotFound and DependencyUnavailable."""
        return await self._lags.of(group)

    async def tend(self) -> None:
        """Let go of what nobody uses, and tell the index how far groups are. Raises DependencyUnavailable."""
        now_s = self._clock.monotonic_s()
        for key in self.filters.look(self._time.now_ms(), self._subscriptions):
            if (found := self._subscriptions.get(key)) is not None:
                found.news.tell()
        for subscription in list(self._subscriptions.values()):
            if subscription.is_busy:
                continue
            if now_s - subscription.used_s > IDLE_S:
                await self._drop(subscription)
            elif events := subscription.skipped():
                for event in events:
                    self.groups.apply(event)
                self._journal.write(events, is_safe=False)
        for subscription in sorted(self._subscriptions.values(), key=lambda one: one.used_s):
            if not self.ahead.is_enough:
                break
            if subscription.held_bytes and not subscription.is_busy:
                await self._drop(subscription)
        if now_s - self._stored_s >= STORE_INTERVAL_S:
            self._stored_s = now_s
            await self.store()

    async def _bury(self, wish: Wish) -> Outcome:
        try:
            await self._bury_message(Handle.decode(wish.handle), wish)
        except HandleOutdated as error:
            return self._repeated(wish, error)
        except ServiceError as error:
            return Outcome(error)
        return Outcome()

    async def _bury_message(self, handle: Handle, wish: Wish) -> None:
        """Put a message among the dead letters, or hear how that ends if it is under way.

        Raises HandleOutdated, and what the journal and the index raise.
        """
        found, delivery = None, (handle.place, handle.offset, handle.stamp)
        if (outcome := self.burying.outcome(*delivery)) is None:
            self._in_flight(handle)
            found = await self.burying.read(handle.place, handle.offset)
            outcome = self.burying.outcome(*delivery)  # another burial may have begun while it was read
        if outcome is None:
            queue, _ = self._in_flight(handle)  # it may have been settled while it was read
            self._repeats.note(wish, "")  # which counts once the message is settled
            if found is None:
                await self.burying.pass_over(queue, handle.offset)
                return
            outcome = self.burying.bury(queue, found)
        try:
            await asyncio.shield(outcome)
        except AppendRefused as error:
            raise DependencyUnavailable("commitlog", f"it does not take the dead letter: {error}") from error

    def _in_flight(self, handle: Handle) -> tuple[QueueState, Flight]:
        """Return the delivery that a handle names. Raises HandleOutdated."""
        queue = self.groups.find(handle.place)
        flight = None if queue is None else queue.flight(handle.offset)
        if queue is None or flight is None or flight.stamp != handle.stamp:
            raise HandleOutdated(handle.topic, handle.queue_id, handle.offset)
        return queue, flight

    def _settle(self, wish: Wish, events: list[Event]) -> Outcome:
        """Let a wish be done, and add what is to be written."""
        try:
            handle = Handle.decode(wish.handle)
            event, outcome = self._settled(handle, wish)
        except HandleOutdated as error:
            return self._repeated(wish, error)
        except ServiceError as error:
            return Outcome(error)
        if not wish.keeps_handle:
            self._repeats.note(wish, outcome.handle)
        self.groups.apply(event)
        events.append(event)
        if (subscription := self._subscriptions.get((handle.group, handle.topic))) is not None:
            subscription.changed(event)
        return outcome

    def _repeated(self, wish: Wish, error: HandleOutdated) -> Outcome:
        """Return the answer to the same wish before, unless the log has lost since what that one did."""
        answer, handle = self._repeats.answer(wish), Handle.decode(wish.handle)
        queue = self.groups.find(handle.place)
        is_undone = wish.verb in FINAL and queue is not None and not queue.is_settled(handle.offset)
        return Outcome(error) if answer is None or is_undone else Outcome(handle=answer)

    def _settled(self, handle: Handle, wish: Wish) -> tuple[Settled | Postponed, Outcome]:
        queue, flight = self._in_flight(handle)
        if wish.verb in ("ack", "terminate"):
            return Settled(handle.place, (handle.offset,)), Outcome()
        now_ms, policy = self._time.now_ms(), self.groups.policy(handle.group)
        delay_ms = wish.delay_ms
        if delay_ms is None:
            delay_ms = policy.backoff_ms(flight.attempt) if wish.verb == "nack" else policy.invisible_ms
        attempt, begin_ms = flight.attempt - wish.is_untried, now_ms
        if wish.verb == "nack":
            delay_ms = delay_ms if attempt < policy.attempts_max else 0  # nobody waits for an attempt that is not made
            begin_ms = now_ms + delay_ms  # so it is nobody's until then
        stamp = flight.stamp if wish.keeps_handle else max(begin_ms, flight.stamp + 1)
        later = Flight(flight.offset, attempt, stamp, now_ms + delay_ms, flight.key)
        if wish.verb == "extend" and (filters := self.filters.find(handle.group, handle.topic)) is not None:
            filters.extended(queue, flight, later)
        changed = Handle(handle.group, handle.topic, handle.queue_id, handle.offset, stamp)
        return Postponed(handle.place, (later,)), Outcome(handle="" if wish.verb == "nack" else changed.encode())

    async def _wait(self, subscription: Subscription, wanted: Wanted, left_s: float) -> bool:
        """Wait until there may be something to receive, at most so long. Returns whether this member was told."""
        subscription.tell_when_due(wanted)
        is_held = self.positions.held(subscription.group, subscription.topic)
        return await subscription.news.wait(wanted, min(left_s, HOLD_LOOK_S if is_held else TOPIC_LOOK_S))

    def _failure(self, place: Place) -> FeedFailure | None:
        subscription = self._subscriptions.get((place.group, place.topic))
        return None if subscription is None else subscription.failure(place.queue_id)

    def _wake(self, place: Place) -> None:
        self.tell(place.group, place.topic)

    async def _subscription(self, group: str, topic: str) -> Subscription:
        """Return what gives a topic's messages to a group; every queue of it has a position then."""
        await self.begin(group, topic)
        if self._is_over:  # nothing would stop what it reads ahead
            raise JournalLost("deliveries begin anew")
        subscription = self._subscriptions.get((group, topic))
        if subscription is None:
            if len(self._subscriptions) >= self._config.subscription_count_max:
                raise WindowFull("groups that receive from topics", limit=self._config.subscription_count_max)
            subscription = Subscription(
                group,
                topic,
                self.groups,
                self._index,
                self._journal,
                self._tally,
                self.burying,
                self._clock,
                self._time,
                self.filters.of(group, topic),
                ahead=self.ahead,
                open_count_max=self._config.queue_open_count_max,
            )
            self._subscriptions[group, topic] = subscription
        return subscription

    async def _drop(self, subscription: Subscription) -> None:
        key = subscription.group, subscription.topic
        if self._subscriptions.get(key) is subscription:  # else it was dropped during a wait, and there is a new one
            del self._subscriptions[key]
        await subscription.stop()

    @property
    def is_stored(self) -> bool:
        """Whether the index was told how far all groups are now, by all that is in the journal."""
        return not self.burying.is_busy and all(
            self._stored.get(queue.place) == queue.committed for queue in self.groups.all_queues()
        )

    async def store(self) -> None:
        """Tell the index how far groups are and what they go by, where that has changed."""
        policies: dict[str, Policy | None] = dict.fromkeys(self._stored_policies.keys() - self.groups.policies.keys())
        policies |= self.groups.policies.items() - self._stored_policies.items()
        if policies:
            told = dict(self.groups.policies)
            with contextlib.suppress(DependencyUnavailable):
                await self._index.store_policies(policies)
                self._stored_policies = told
        changed: dict[str, dict[tuple[str, int], int]] = {}
        for queue in self.groups.all_queues():
            if self._stored.get(queue.place) != (committed := queue.committed):
                changed.setdefault(queue.place.group, {})[queue.place.topic, queue.place.queue_id] = committed
        for group, offsets in changed.items():
            with contextlib.suppress(DependencyUnavailable):
                await self._index.store_offsets(group, offsets)
                stored = {Place(group, *queue): offset for queue, offset in offsets.items()}
                self._stored |= {one: offset for one, offset in stored.items() if self.groups.find(one) is not None}


async def _stop_all(subscriptions: Sequence[Subscription]) -> None:
    await asyncio.gather(*(subscription.stop() for subscription in subscriptions))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
