# SPDX-License-Identifier: Apache-2.0
"""Groups whose members share messages, and their dead letters, as values that callers see."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reput.delivery.v1 import dead_letter_service_pb2, group_service_pb2

from reput_client.core.answers import of_fields
from reput_client.core.call import Call
from reput_client.core.sharing.calls import duration
from reput_client.core.types import Message, TimeLike, to_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePolicy:
    """How a group gets its messages."""

    attempts_max: int = 17
    """A message that was delivered so often and not settled becomes a dead letter. 1 to 1,000."""
    backoffs_s: tuple[float, ...] = ()
    """How long a message waits after a nack without delay, by attempts.

    Empty: RocketMQ's, from 10 s to 2 h, and from 1 s in an ordered group.
    """
    invisible_s: float = 60.0
    """For how long a message is the receiver's who asks for no other time."""
    is_ordered: bool = False
    """Messages with the same sharding key of a queue come one after the other."""
    from_end: bool = False
    """Queues that exist when the group begins with a topic begin at their end, later ones at their first message."""
    is_paused: bool = False
    """Nobody receives anything."""


@dataclass(frozen=True, slots=True)
class ShareQueue:
    """How far a group is in a queue. `max_queue_offset` is exclusive."""

    topic: str
    queue_id: int
    committed_queue_offset: int
    """The first message that is not settled."""
    next_queue_offset: int
    """The first message that was never delivered."""
    max_queue_offset: int
    lag: int
    """Messages that are not settled."""
    in_flight_count: int
    """Messages that receivers have."""
    held_count: int
    """Messages that wait for one with the same sharding key, or for a member whose filter they pass."""
    lag_s: float | None
    """For how long the oldest message that is not settled has been stored, None if there is none."""
    lag_bytes: int
    """Of the records of the messages that are not settled."""
    waiting_count: int = 0
    """Messages that were given back, or whose receivers' time is over: they wait for the next attempt."""
    next_attempt: datetime | None = None
    """When the first of these may be delivered; a time that is over means that nobody receives."""
    waits_for: tuple[tuple[int, int], ...] = ()
    """Of a queue that the topic of an ordered group got later: which queues are worked off before it, and up to where.

    Pairs of a queue id and a queue offset.
    """
    standstills: tuple[str, ...] = ()
    """Why the messages that are not settled do not go on, in words."""


@dataclass(frozen=True, slots=True)
class ShareFilter:
    """What members of a group ask for of a topic at the moment. Several of a topic: its members differ."""

    topic: str
    tags: str
    where: str


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A group, its policy, and how far it is. Lists leave out queues, dead letters and filters."""

    name: str
    policy: SharePolicy
    queues: tuple[ShareQueue, ...]
    dead_letter_count: int
    filters: tuple[ShareFilter, ...] = ()
    """What its members ask for at the moment."""


@dataclass(frozen=True, slots=True)
class ShareMove:
    """From where to where a group moves in a queue, and how many messages in flight count as settled."""

    queue_id: int
    from_queue_offset: int
    to_queue_offset: int
    settled_count: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that its group could not process. What it does not tell of itself is None, "" or 0."""

    message: Message
    """As it is stored among the dead letters; its store time is when it died."""
    origin_topic: str
    origin_queue_id: int | None
    origin_queue_offset: int | None
    origin_message_id: str
    attempt_count: int

    @property
    def place(self) -> tuple[int, int]:
        """Queue id and queue offset among the dead letters."""
        return self.message.queue_id, self.message.queue_offset


@dataclass(frozen=True, slots=True)
class ReplayedTopic:
    """What became of the letters that came from a topic; `refusal` says why it takes none."""

    topic: str
    replayed_count: int
    refused_count: int
    refusal: str


@dataclass(frozen=True, slots=True)
class Replay:
    """How far a replay is: entries that were looked at, and what became of the letters that were meant."""

    passed_count: int
    total_count: int
    topics: tuple[ReplayedTopic, ...]
    done_before_count: int
    """Letters that somebody else has replayed or received."""
    is_done: bool

    @property
    def replayed_count(self) -> int:
        """Letters that are back where they came from."""
        return sum(topic.replayed_count for topic in self.topics)

    @property
    def refused_count(self) -> int:
        """Letters that stay."""
        return sum(topic.refused_count for topic in self.topics)


def policy_message(policy: SharePolicy) -> group_service_pb2.GroupPolicy:
    """Return a policy for a request."""
    return group_service_pb2.GroupPolicy(
        attempts_max=policy.attempts_max,
        backoffs=map(duration, policy.backoffs_s),
        invisible=duration(policy.invisible_s),
        is_ordered=policy.is_ordered,
        from_end=policy.from_end,
        is_paused=policy.is_paused,
    )


def group_of(message: Any) -> ShareGroup:
    """Return a group of the API as a value."""
    policy = message.policy
    return ShareGroup(
        message.name,
        of_fields(
            SharePolicy,
            policy,
            backoffs_s=tuple(map(_seconds, policy.backoffs)),
            invisible_s=_seconds(policy.invisible),
        ),
        tuple(map(_queue_of, message.queues)),
        message.dead_letter_count,
        tuple(ShareFilter(one.topic, one.tag_expression, one.where) for one in message.filters),
    )


def get_group(group: str) -> Call[ShareGroup]:
    """Return the call that looks at a group."""
    return Call(group_service_pb2.GetGroupRequest(group=group), group_in)


def group_in(answer: Any) -> ShareGroup:
    """Return the group of an answer that has one."""
    return group_of(answer.group)


def move_of(message: Any) -> ShareMove:
    """Return a move of the API as a value."""
    return of_fields(ShareMove, message)


def letter_of(message: Any) -> DeadLetter:
    """Return a dead letter of the API as a value."""
    origin = {
        name: getattr(message, name) if message.HasField(name) else None
        for name in ("origin_queue_id", "origin_queue_offset")
    }
    return of_fields(DeadLetter, message, message=Message(message.message), **origin)


def replay_of(answer: Any) -> Replay:
    """Return an answer of a replay as a value."""
    return of_fields(Replay, answer, topics=tuple(of_fields(ReplayedTopic, topic) for topic in answer.topics))


def selection_of(
    places: Iterable[tuple[int, int]], where: str, start: TimeLike | None, end: TimeLike | None
) -> dead_letter_service_pb2.DeadLetterSelection:
    """Return which dead letters are meant, for a request."""
    return dead_letter_service_pb2.DeadLetterSelection(
        places=[
            dead_letter_service_pb2.DeadLetterPlace(queue_id=queue_id, queue_offset=queue_offset)
            for queue_id, queue_offset in places
        ],
        where=where,
        start_time=to_timestamp(start),
        end_time=to_timestamp(end),
    )


def _queue_of(message: Any) -> ShareQueue:
    lag_s = _seconds(message.lag_time) if message.HasField("lag_time") else None
    next_attempt = message.next_attempt.ToDatetime(tzinfo=UTC) if message.HasField("next_attempt") else None
    waits_for = tuple((older.queue_id, older.end_queue_offset) for older in message.waits_for)
    standstills = tuple(one.text for one in message.standstills)
    return of_fields(
        ShareQueue, message, lag_s=lag_s, next_attempt=next_attempt, waits_for=waits_for, standstills=standstills
    )


def _seconds(value: Any) -> float:
    return float(value.seconds + value.nanos / 1e9)
