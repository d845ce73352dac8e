# SPDX-License-Identifier: Apache-2.0
"""Groups: the policies and queues of all groups, and the delayed messages that are done, made of the journal's events.

Callers: a single thread. Memory: that of the queues, which GroupEngine bounds.
"""

from collections.abc import Callable, Iterator

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.delivery_record import (
    Began,
    Copied,
    CopyEdge,
    DelaysCopied,
    DelaysDone,
    Event,
    Moved,
    Place,
    Policy,
    PolicySet,
    Postponed,
    TimeBehind,
    Took,
)
from libs.formats.state.system_topics import LEVELS_GROUP
from services.delivery.engine.state.done import Done
from services.delivery.engine.state.last_attempts import LastAttempts
from services.delivery.engine.state.queue import QueueState


class Groups:
    """The state of all groups. `apply` is the only way to change it."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        """Policies of the groups that were given a policy; other groups have the default."""
        self._queues: dict[str, dict[tuple[str, int], QueueState]] = {}
        self.behind_ms = 0
        """How far the times of deliveries are behind store times: the sum of the jumps of store times."""
        self.open_count = 0
        """Messages of all groups that are in flight or held."""
        self.delays = Done()
        self.levels: dict[int, int] = {}
        """The queue offset of each delay level's next message, by the id of the level's queue."""
        self.last_attempts = LastAttempts(self.find, lambda group: self.policy(group).attempts_max)
        self._queue_count = 0
        self.when_room: set[Callable[[], None]] = set()
        """Each is called once, as soon as fewer messages are in flight or held."""

    def policy(self, group: str) -> Policy:
        """Return a group's policy, the default if it was given none."""
        return self.policies.get(group) or Policy()

    def names(self) -> list[str]:
        """Return all groups that have a policy or a queue, sorted."""
        return sorted(self.policies.keys() | self._queues.keys())

    @property
    def count(self) -> int:
        """How many groups there are. From any thread."""
        return len(self.policies.keys() | self._queues.keys())

    @property
    def size(self) -> int:
        """Number of policies, and of queues in which a group has a position."""
        return len(self.policies) + self._queue_count

    def is_known(self, group: str) -> bool:
        """Return whether a group has a policy or a queue."""
        return group in self.policies or group in self._queues

    def find(self, place: Place) -> QueueState | None:
        """Return the state of a queue, None if the group has no position in it."""
        return self._queues.get(place.group, {}).get((place.topic, place.queue_id))

    def has(self, queue: QueueState) -> bool:
        """Return whether this state of a queue is still valid: the group may have been deleted since."""
        return self.find(queue.place) is queue

    def queues(self, group: str) -> list[QueueState]:
        """Return the queues of a group, by topic and id."""
        return [queue for _, queue in sorted(self._queues.get(group, {}).items())]

    def all_queues(self) -> Iterator[QueueState]:
        """Yield every queue that exists at its turn. Queues may be added and removed meanwhile."""
        for group in list(self._queues):
            yield from (queue for queue in self.queues(group) if self.has(queue))

    def level_positions(self) -> dict[Place, int]:
        """Return the queue offset of each delay level's next message, by the place of the level's queue."""
        return {Place(LEVELS_GROUP, SCHEDULE_TOPIC, queue_id): position for queue_id, position in self.levels.items()}

    def apply(self, event: Event) -> None:
        """Apply an event."""
        before = self.open_count
        self._apply(event)
        if self.when_room and self.open_count < before:
            told, self.when_room = self.when_room, set()
            for tell in told:
                tell()

    def _apply(self, event: Event) -> None:
        if isinstance(event, PolicySet):
            if event.policy is not None:
                self.policies[event.group] = event.policy
                for queue in self.queues(event.group):
                    self.last_attempts.note(queue.place, queue.flights())
            else:
                self.policies.pop(event.group, None)
                for queue in self._queues.pop(event.group, {}).values():
                    self.open_count -= queue.open_count
                    self._queue_count -= 1
        elif isinstance(event, DelaysDone | DelaysCopied):
            self.delays.apply(event)
        elif isinstance(event, TimeBehind):
            self.behind_ms = event.behind_ms
        elif isinstance(event, Took | Moved) and event.place.group == LEVELS_GROUP:
            least = self.levels.get(event.place.queue_id, 0) if isinstance(event, Took) else 0
            self.levels[event.place.queue_id] = max(event.next, least)
        elif not isinstance(event, Began | CopyEdge):
            queue = self._queue(event.place)
            before = queue.open_count
            queue.apply(event)
            self.open_count += queue.open_count - before
            if isinstance(event, Took | Postponed | Copied):
                self.last_attempts.note(event.place, event.flights)

    def _queue(self, place: Place) -> QueueState:
        queues = self._queues.setdefault(place.group, {})
        if (queue := queues.get((place.topic, place.queue_id))) is None:
            queue = queues[place.topic, place.queue_id] = QueueState(place)
            self._queue_count += 1
        return queue
