# SPDX-License-Identifier: Apache-2.0
"""Routing: the logic of a producer over shards: which message goes to which shard, and which waits. No I/O, no threads.

The states of a message: held -> sent to the producer of a shard -> settled, or held again when its queue refuses it.

Order: the messages of a key are at a single queue at a time. A message is held while another queue may still store an
earlier message of its hash, and while an earlier message of its hash is held. So after a refusal the refused and all
later messages of a hash wait until each outcome is known, and then go to the new queue in their order. Hashes do not
wait for each other.

Invariants: `unsettled_bytes` is the size of all messages that were added and not settled, held or sent. It bounds the
sizes at the producers of the shards, which therefore have room for each message that is sent. Each message is settled
a single time. A shard takes at most half of the window, and so do all messages that wait, held or at shards that are
away. So a shard that is away, or hangs, does not stop the messages for other shards.

Callers: a single caller at a time (with a lock or an event loop). Messages to send, and outcomes, are collected for
`pop_sends` and `pop_failed`. `clock` returns seconds of a monotonic clock, `chance` a number from 0 to 1.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc

from reput_client.core.errors import OutcomeUnknownError, ReputError, UnavailableError
from reput_client.core.sending import QUEUE_NOT_HERE, Sink
from reput_client.core.shards.chunks import QUEUE_FIELD_SIZE_MAX, key_hash, with_queue
from reput_client.core.shards.entries import Encoded, Entry, Flow, TopicQueue
from reput_client.core.shards.targets import KEPT_S, Target
from reput_client.core.types import Topic

AWAY_S = 1.0
"""A shard that could not be reached gets no message without a key for so long."""
SILENT_S = 0.5
"""A shard that has sent no outcome for so long, although it has messages, is away."""
EXPIRY_LOOK_S = 0.5
"""How often waiting messages are looked at for the end of their time, and shards for their silence."""

Placed: TypeAlias = tuple[bytes, str, Entry]
"""A message for the producer of a shard: the chunk has the queue."""


class _Shard:
    """The messages without an outcome at a shard, and whether it is away.

    `heard_s` is the time of the last outcome, or of the first message after it.
    """

    __slots__ = ("away_until_s", "heard_s", "is_broken", "sends", "unsettled_bytes", "unsettled_count")

    def __init__(self) -> None:
        self.unsettled_count = self.unsettled_bytes = 0
        self.away_until_s, self.heard_s, self.is_broken = 0.0, 0.0, False
        self.sends: list[Placed] = []


class Routing:
    """The messages of a producer over shards. The window bounds `unsettled_bytes`."""

    def __init__(
        self,
        shards: Sequence[str],
        *,
        window_bytes: int,
        patience_s: float,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.unsettled_bytes = self.unsettled_count = self.added_count = self.failed_count = 0
        self._window_bytes, self._patience_s = window_bytes, patience_s
        self._part_bytes = window_bytes if len(shards) == 1 else window_bytes // 2
        """The part of the window that a shard, or the messages that wait, may take."""
        self._clock, self._chance = clock, chance
        self._shards = {shard: _Shard() for shard in shards}
        self._topics: dict[str, TopicQueue] = {}
        self._has_away = self._has_sends = self._has_questions = False
        self._failed: list[tuple[Sink, ReputError]] = []
        self._expiry_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether every message is settled, and its outcome popped."""
        return self.unsettled_count == 0 and not self._failed

    def has_room(self, size_bytes: int, topic: str, *, key: str | None = None, queue_id: int | None = None) -> bool:
        """Return whether a message with a chunk of this size may be added now."""
        size_bytes += QUEUE_FIELD_SIZE_MAX
        if self.unsettled_bytes == 0 or self.unsettled_bytes + size_bytes <= self._part_bytes:
            return True
        if self.unsettled_bytes + size_bytes > self._window_bytes:
            return False
        shards = self._shards_of(topic, key, queue_id)
        if shards and all(shard.is_broken for shard in shards):
            shards = []
        return self._has_part(size_bytes, shards)

    def add(self, topic: str, encoded: Encoded, *, key: str | None = None, queue_id: int | None = None) -> None:
        """Add a message. A queue that the program has chosen takes precedence over the key."""
        queue = self._topics.get(topic) or self._begin(topic)
        queue.use_count += 1
        value = key_hash(key) if key is not None and queue_id is None else None
        entry = Entry(queue, encoded, self.added_count, value, queue_id)
        self.added_count += 1
        self.unsettled_count += 1
        self.unsettled_bytes += entry.size_bytes
        if value is None:
            self._start_loose(queue, entry)
            return
        flow, target = queue.flows.get(value), queue.of_hash(value)
        if flow is None:
            flow = queue.flows[value] = Flow()
            flow.target = target
        if target is None or flow.target is not target or flow.holds:
            self._hold(entry)
            flow.hold(entry)
            queue.held.add(value)
            if not flow.unsettled_count:
                self._miss(queue)
        else:
            self._send(flow, entry, target)

    def on_stored(self, entries: Sequence[Entry]) -> None:
        """Record that messages are stored."""
        for entry in entries:
            self._shards[self._leave(entry).shard].is_broken = False
            self._settle(entry)
            if entry.key_hash is not None:
                self._advance(entry.topic, entry.key_hash)

    def on_failed(self, entries: Sequence[Entry], error: ReputError) -> None:
        """Fail messages, or let them wait for another queue, if their queue has refused them with QUEUE_NOT_HERE."""
        for entry in entries:
            target = self._leave(entry)
            if error.reason == QUEUE_NOT_HERE:
                self._refuse(entry, target, error)
            else:
                self._fail(entry, error)
            if entry.key_hash is not None:
                self._advance(entry.topic, entry.key_hash)

    def on_unsent(self, placed: Sequence[Placed], error: ReputError) -> None:
        """Fail messages that the producer of their shard does not take: it is closed."""
        self.on_failed([entry for _, _, entry in placed], error)

    def on_away(self, shard: str) -> None:
        """Record that a shard could not be reached."""
        state = self._shards[shard]
        state.away_until_s, state.is_broken = self._clock() + AWAY_S, True
        self._has_away = True

    def question(self, shard: str) -> str | None:
        """Return the topic that a shard has to be asked for now, None if there is none. `answer` ends the question."""
        now_s = self._clock()
        for name, queue in self._topics.items():
            if queue.wait_s(shard, now_s) <= 0:
                queue.begin(shard, now_s)
                return name
        return None

    def question_wait_s(self, shard: str) -> float | None:
        """Return seconds until `question` has to be called again, None without topics."""
        if not self._topics:
            return None
        now_s = self._clock()
        longest_s = KEPT_S if self.is_idle else EXPIRY_LOOK_S
        return min(longest_s, *(queue.wait_s(shard, now_s) for queue in self._topics.values()))

    def answer(self, shard: str, name: str, answer: Topic | ReputError) -> None:
        """Apply the answer of a shard to a question, or its error. Messages that waited for it go on.

        A topic that no shard has ever had is forgotten, so that wrong names take no memory.
        """
        if (queue := self._topics.get(name)) is None:
            return
        queue.answer(shard, answer)
        if (failure := queue.failure) is not None:
            for entry in queue.take():
                self._fail(entry, failure)
            if queue.was_found:
                queue.forget()
            else:
                del self._topics[name]
            return
        queue.is_lost = False
        loose, queue.loose = queue.loose, []
        for entry in loose:
            self._start_loose(queue, entry)
        for value in list(queue.held):
            self._advance(queue, value)

    def expire(self) -> None:
        """Fail the messages that have waited too long for a queue, and record which shards are silent.

        To be called each EXPIRY_LOOK_S.
        """
        now_s = self._clock()
        if now_s < self._expiry_s:
            return
        self._expiry_s = now_s + EXPIRY_LOOK_S
        for shard in self._shards.values():
            if shard.unsettled_count and now_s - shard.heard_s > SILENT_S:
                shard.is_broken = self._has_away = True
        for queue in self._topics.values():
            for entry in queue.take(now_s - self._patience_s):
                self._fail(entry, self._expired(entry))

    def fail_all(self, error: ReputError) -> int:
        """Fail all messages that wait for a queue, for a producer that is closed. Returns their number."""
        count = 0
        for queue in self._topics.values():
            for entry in queue.take():
                self._fail(entry, entry.refusal if isinstance(entry.refusal, OutcomeUnknownError) else error)
                count += 1
        return count

    def pop_sends(self) -> list[tuple[str, list[Placed]]]:
        """Pop the messages to send: the shard, and its messages in their order."""
        if not self._has_sends:
            return []
        self._has_sends = False
        popped = [(name, shard.sends) for name, shard in self._shards.items() if shard.sends]
        for name, _ in popped:
            self._shards[name].sends = []
        return popped

    def pop_failed(self) -> list[tuple[Sink, ReputError]]:
        """Pop the messages that failed here, which their sinks have to be told."""
        failed, self._failed = self._failed, []
        return failed

    def pop_questions(self) -> bool:
        """Return whether a shard has to be asked earlier than `question_wait_s` last told."""
        has_questions, self._has_questions = self._has_questions, False
        return has_questions

    def _shards_of(self, topic: str, key: str | None, queue_id: int | None) -> list[_Shard]:
        """Return the shards that may get a message. None of them, if its queue is not known."""
        queue = self._topics.get(topic)
        if queue is None:
            return []
        if queue_id is not None:
            found = [queue.of_queue(queue_id)]
        else:
            found = [*queue.open] if key is None else [queue.of_hash(key_hash(key))]
        return [self._shards[target.shard] for target in found if target is not None]

    def _has_part(self, size_bytes: int, shards: Sequence[_Shard]) -> bool:
        """Return whether one of the shards has room for a message. Without shards, the messages that wait have it."""
        used = [shard.unsettled_bytes for shard in shards] or [self._waiting_bytes]
        return min(used) == 0 or min(used) + size_bytes <= self._part_bytes

    @property
    def _waiting_bytes(self) -> int:
        """The size of the messages that are held, or at shards that are away."""
        return self.unsettled_bytes - sum(one.unsettled_bytes for one in self._shards.values() if not one.is_broken)

    def _begin(self, topic: str) -> TopicQueue:
        queue = self._topics[topic] = TopicQueue(topic, list(self._shards))
        self._has_questions = True
        return queue

    def _refuse(self, entry: Entry, target: Target, error: ReputError) -> None:
        """Let a message wait for another queue."""
        entry.refusal = error
        if target.closed_at is None:
            entry.topic.close(target)
            self._has_questions = True
        if entry.key_hash is None:
            self._start_loose(entry.topic, entry)
            return
        self._hold(entry)
        entry.topic.flows[entry.key_hash].refuse(entry)
        entry.topic.held.add(entry.key_hash)

    def _start_loose(self, queue: TopicQueue, entry: Entry) -> None:
        """Send a message without a key, or let it wait for a queue."""
        if entry.queue_id is None:
            target = self._draw(queue.open)
        else:
            target = queue.of_queue(entry.queue_id)
            failure = queue.failure_of_queue(entry.queue_id) if target is None else entry.refusal
            if failure is not None and (target is None or not queue.is_open(target)):
                self._fail(entry, failure)
                return
        if target is not None:
            self._send(None, entry, target)
            return
        self._hold(entry)
        queue.loose.append(entry)
        self._miss(queue)

    def _draw(self, targets: Sequence[Target]) -> Target | None:
        """Return of two queues at random the queue with fewer messages, and none of a shard that is away."""
        if self._has_away or self.unsettled_bytes > self._part_bytes:
            targets = self._reachable(targets)
        count = len(targets)
        if count <= 1:
            return targets[0] if targets else None
        first = int(self._chance() * count)
        second = int(self._chance() * (count - 1))
        left, right = targets[first], targets[second + (second >= first)]
        return right if right.unsettled_count < left.unsettled_count else left

    def _reachable(self, targets: Sequence[Target]) -> Sequence[Target]:
        """Return the queues of shards that are not away and have room. All queues, if no shard is so.

        A shard is away for AWAY_S, and for as long as messages wait for it that it has not answered since.
        """
        now_s = self._clock()
        away = {
            name
            for name, shard in self._shards.items()
            if shard.away_until_s > now_s or (shard.is_broken and shard.unsettled_count)
        }
        self._has_away = bool(away)
        away |= {name for name, shard in self._shards.items() if shard.unsettled_bytes >= self._part_bytes}
        return [target for target in targets if target.shard not in away] or targets

    def _send(self, flow: Flow | None, entry: Entry, target: Target) -> None:
        shard = self._shards[target.shard]
        entry.target = target
        target.unsettled_count += 1
        if not shard.unsettled_count:
            shard.heard_s = self._clock()
        shard.unsettled_count += 1
        shard.unsettled_bytes += entry.size_bytes
        if flow is not None:
            flow.unsettled_count += 1
        needs_field = target.field is not None and entry.queue_id is None
        chunk = with_queue(entry.chunk, target.field) if needs_field and target.field else entry.chunk
        shard.sends.append((chunk, entry.unique_id, entry))
        self._has_sends = True

    def _leave(self, entry: Entry) -> Target:
        """Record that a message has an outcome at its target."""
        target, entry.target = entry.target, None
        assert target is not None
        target.unsettled_count -= 1
        shard = self._shards[target.shard]
        shard.unsettled_count -= 1
        shard.unsettled_bytes -= entry.size_bytes
        shard.heard_s = self._clock()
        if entry.key_hash is not None:
            entry.topic.flows[entry.key_hash].unsettled_count -= 1
        return target

    def _advance(self, queue: TopicQueue, value: int) -> None:
        """Send the messages of a hash that wait, if no queue may still store an earlier message of it."""
        flow = queue.flows[value]
        if flow.unsettled_count:
            return
        if not flow.holds:
            del queue.flows[value]
            return
        target = queue.of_hash(value)
        if target is None:
            self._miss(queue)
            return
        flow.target = target
        queue.held.discard(value)
        for entry in flow.take():
            self._send(flow, entry, target)

    def _hold(self, entry: Entry) -> None:
        if not entry.since_s:
            entry.since_s = self._clock()

    def _miss(self, queue: TopicQueue) -> None:
        """Record that messages wait for a queue that is not known."""
        if not queue.is_lost:
            queue.is_lost = self._has_questions = True

    def _fail(self, entry: Entry, error: ReputError) -> None:
        self._settle(entry)
        self.failed_count += 1
        self._failed.append((entry.sink, error))

    def _settle(self, entry: Entry) -> None:
        self.unsettled_bytes -= entry.size_bytes
        self.unsettled_count -= 1

    def _expired(self, entry: Entry) -> ReputError:
        """Return the error of a message for which no shard has told an open queue in time."""
        if isinstance(entry.refusal, OutcomeUnknownError):
            return entry.refusal
        reasons = "".join(f"; {error}" for error in entry.topic.errors)
        text = f"the shard that has the message's queue of topic {entry.topic.name} did not say so"
        return UnavailableError(
            f"{text} within {self._patience_s} s{reasons}",
            code=grpc.StatusCode.UNAVAILABLE,
            reason="DEPENDENCY_UNAVAILABLE",
        )
