# SPDX-License-Identifier: Apache-2.0
"""TopicRoute: the queues of a topic over all shards, by the answers of the shards. No I/O.

Each shard tells its own share of the topic. A shard that is away keeps the share that it had. Each hash has at most one
open queue: where several queues claim a hash, the queue of the share with the larger version has it. A topic without a
share is whole at a single shard, whose log chooses the queues.

A queue that has refused a message is closed here until its shard has answered a question that began after the refusal.
"""

import bisect
from collections.abc import Sequence

import grpc

from reput_client.core.errors import FailedPreconditionError, ReputError
from reput_client.core.retry import is_passing
from reput_client.core.shards.chunks import queue_field
from reput_client.core.shards.names import at_shard
from reput_client.core.types import QueueRange, Topic, TopicShare

TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
KEPT_S = 10.0
"""After so long the shards are asked again, if the topic is in use."""
ASK_S = 1.0
"""How long a shard may take for an answer. A shard that hangs delays a topic that it does not have for so long."""
LOOK_S = 0.05
"""How often the shards are asked while messages wait for a queue."""
LOOK_AWAY_S = 0.25
"""How often a shard is asked meanwhile that did not answer the last time."""


class Target:
    """A queue that messages are sent to, and the number of its messages without an outcome.

    Without a `queue_id` it is all of a topic that is whole at the shard. `field` is the queue's number in a message.
    """

    __slots__ = ("closed_at", "field", "queue_id", "shard", "unsettled_count")

    def __init__(self, shard: str, queue_id: int | None) -> None:
        self.shard, self.queue_id = shard, queue_id
        self.field = None if queue_id is None else queue_field(queue_id)
        self.unsettled_count = 0
        self.closed_at: int | None = None
        """The number of questions to the shard when the queue refused a message. None: it is not closed."""


class _Asked:
    """The questions to a shard about the topic."""

    __slots__ = ("begun_count", "begun_s", "error", "has_answered", "is_wanted", "use_count")

    def __init__(self) -> None:
        self.begun_count, self.begun_s, self.use_count = 0, 0.0, 0
        self.is_wanted, self.has_answered = True, False
        self.error: ReputError | None = None


class TopicRoute:
    """The queues of a topic. `open` has the queues that take messages of any key."""

    def __init__(self, name: str, shards: Sequence[str]) -> None:
        self.name, self.use_count = name, 0
        self.is_lost = False
        """Whether messages wait for a queue that no shard has told yet."""
        self.open: list[Target] = []
        self._asked = {shard: _Asked() for shard in shards}
        self._shares: dict[str, TopicShare] = {}
        self._whole: set[str] = set()
        self._targets: dict[tuple[str, int | None], Target] = {}
        self._ranges: list[tuple[int, int, Target]] = []
        self._firsts: list[int] = []
        self._shard_of: dict[int, str] = {}
        self._home: Target | None = None

    def of_hash(self, value: int) -> Target | None:
        """Return the open queue of a hash. None while a change is under way, and if its shard is not known."""
        if self._home is not None:
            target = self._home
        else:
            at = bisect.bisect_right(self._firsts, value) - 1
            if at < 0 or value > self._ranges[at][1]:
                return None
            target = self._ranges[at][2]
        return target if target.closed_at is None else None

    def of_queue(self, queue_id: int) -> Target | None:
        """Return a queue by its number, sealed or not. None if no shard is known to have it, or if it is closed."""
        target = self._home
        if target is None:
            shard = self._shard_of.get(queue_id)
            target = None if shard is None else self._target(shard, queue_id)
        return target if target is not None and target.closed_at is None else None

    def is_open(self, target: Target) -> bool:
        """Return whether a queue takes messages, as far as its shard has told."""
        return target in self.open

    def close(self, target: Target) -> None:
        """Record that a queue has refused a message: all shards are asked."""
        target.closed_at = self._asked[target.shard].begun_count
        for asked in self._asked.values():
            asked.is_wanted = True
        self._set_open()

    def wait_s(self, shard: str, now_s: float) -> float:
        """Return seconds until a shard has to be asked, 0 for now."""
        asked = self._asked[shard]
        if not asked.begun_count:
            return 0.0
        look_s = LOOK_S if asked.error is None else LOOK_AWAY_S
        kept_s = look_s if asked.is_wanted or self.is_lost else KEPT_S
        wait_s = asked.begun_s + kept_s - now_s
        return KEPT_S if wait_s <= 0 and kept_s == KEPT_S and asked.use_count == self.use_count else max(wait_s, 0.0)

    def begin(self, shard: str, now_s: float) -> None:
        """Record that a question to a shard begins. A shard has a single question at a time."""
        asked = self._asked[shard]
        asked.begun_count += 1
        asked.begun_s, asked.use_count, asked.is_wanted = now_s, self.use_count, False

    def answer(self, shard: str, answer: Topic | ReputError) -> None:
        """Apply the answer of a shard, or the error of the question."""
        asked = self._asked[shard]
        asked.has_answered, asked.error = True, None
        if isinstance(answer, ReputError):
            asked.error = at_shard(shard, answer)
        if not isinstance(answer, ReputError) or answer.reason == TOPIC_NOT_FOUND:
            self._note(shard, answer if isinstance(answer, Topic) else None)
            for target in self._targets.values():
                if target.shard == shard and target.closed_at is not None and target.closed_at < asked.begun_count:
                    target.closed_at = None
        self._build()

    def forget(self) -> None:
        """Forget that all shards have answered: the next message asks them again."""
        self.is_lost = False
        for asked in self._asked.values():
            asked.has_answered, asked.is_wanted, asked.error = False, False, None

    @property
    def was_found(self) -> bool:
        """Whether a shard has ever told a queue of the topic."""
        return bool(self._targets)

    @property
    def failure(self) -> ReputError | None:
        """Why the topic takes no messages, if all shards have answered, and no later answer may help."""
        if self._shares or len(self._whole) == 1 or not self._is_heard:
            return None
        if self._whole:
            text = (
                f"topic {self.name} is whole at the shards {', '.join(sorted(self._whole))}: it must be at one of them"
            )
            return FailedPreconditionError(text, code=grpc.StatusCode.FAILED_PRECONDITION)
        errors = self.errors
        if any(is_passing(error) for error in errors):
            return None
        return next((error for error in errors if error.reason != TOPIC_NOT_FOUND), errors[0])

    def failure_of_queue(self, queue_id: int) -> ReputError | None:
        """Return the error of a message for a queue that no shard has. None if a later answer may tell the queue."""
        if self._home is not None or not self._is_heard or queue_id in self._shard_of:
            return None
        if any(error.reason != TOPIC_NOT_FOUND for error in self.errors):
            return None
        return FailedPreconditionError(
            f"no shard has queue {queue_id} of topic {self.name}",
            code=grpc.StatusCode.FAILED_PRECONDITION,
            reason="QUEUE_NOT_HERE",
            metadata={"topic": self.name, "field": "queue_id", "value": str(queue_id)},
        )

    @property
    def errors(self) -> list[ReputError]:
        """The errors of the last questions to the shards."""
        return [asked.error for asked in self._asked.values() if asked.error is not None]

    @property
    def _is_heard(self) -> bool:
        """Whether all shards have answered, or failed."""
        return all(asked.has_answered for asked in self._asked.values())

    def _note(self, shard: str, topic: Topic | None) -> None:
        """Note the topic at a shard, None if the shard does not have it."""
        self._shares.pop(shard, None)
        self._whole.discard(shard)
        if topic is not None and topic.share is None:
            self._whole.add(shard)
        elif topic is not None and topic.share is not None:
            self._shares[shard] = topic.share

    def _target(self, shard: str, queue_id: int | None) -> Target:
        return self._targets.setdefault((shard, queue_id), Target(shard, queue_id))

    def _build(self) -> None:
        """Make the ranges of all queues, sorted, without overlaps: newer shares take their ranges first."""
        ranges: list[tuple[int, int, Target]] = []
        for shard, share in sorted(self._shares.items(), key=lambda item: (-item[1].version, item[0])):
            for queue in (one for one in share.queues if not one.is_sealed):
                target = self._target(shard, queue.queue_id)
                ranges += [(first, last, target) for first, last in _without(queue, ranges)]
                ranges.sort(key=_first_of)
        self._ranges, self._firsts = ranges, [first for first, _, _ in ranges]
        self._shard_of = {queue.queue_id: shard for shard, share in self._shares.items() for queue in share.queues}
        is_home = not self._shares and len(self._whole) == 1 and self._is_heard
        self._home = self._target(next(iter(self._whole)), None) if is_home else None
        self._set_open()

    def _set_open(self) -> None:
        targets = [self._home] if self._home is not None else [target for _, _, target in self._ranges]
        self.open = [target for target in dict.fromkeys(targets) if target.closed_at is None]


def _first_of(part: tuple[int, int, Target]) -> int:
    return part[0]


def _without(queue: QueueRange, taken: Sequence[tuple[int, int, Target]]) -> list[tuple[int, int]]:
    """Return the parts of a queue's range that are not taken. `taken` is sorted."""
    free, first = list[tuple[int, int]](), queue.first_hash
    for taken_first, taken_last, _ in taken:
        if taken_last < first or taken_first > queue.last_hash:
            continue
        if taken_first > first:
            free.append((first, taken_first - 1))
        first = taken_last + 1
    return [*free, (first, queue.last_hash)] if first <= queue.last_hash else free
