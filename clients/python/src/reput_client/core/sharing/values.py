# SPDX-License-Identifier: Apache-2.0
"""Groups whose members share messages, and their dead letters, as the values that callers get."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from reput.delivery.v1 import dead_letter_service_pb2, group_service_pb2

from reput_client.core.answers import of_fields
from reput_client.core.call import Call
from reput_client.core.sharing.calls import duration
from reput_client.core.types import Message, TimeLike, to_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePolicy:
    """The policy of a group: attempts, delays, leases and order."""

    attempts_max: int = 17
    """A message that is not settled after this number of deliveries becomes a dead letter. 1 to 1,000."""
    backoffs_s: tuple[float, ...] = ()
    """Seconds that a message waits after a nack without delay, by attempts.

    Empty: RocketMQ's delays, from 10 s to 2 h, and from 1 s in an ordered group.
    """
    invisible_s: float = 60.0
    """The lease in seconds, for a receiver that asks for no other time."""
    is_ordered: bool = False
    """Messages of a queue with the same sharding key are delivered in sequence."""
    from_end: bool = False
    """When the group begins with a topic, existing queues begin at their end, later queues at their first message."""
    is_paused: bool = False
    """The group is paused: no member receives messages."""


@dataclass(frozen=True, slots=True)
class ShareQueue:
    """The progress of a group in a queue. `max_queue_offset` is exclusive."""

    topic: str
    queue_id: int
    committed_queue_offset: int
    """The first message that is not settled."""
    next_queue_offset: int
    """The first message that was never delivered."""
    max_queue_offset: int
    lag: int
    """Number of messages that are not settled."""
    in_flight_count: int
    """Number of messages that receivers hold."""
    held_count: int
    """Messages that wait for another with the same sharding key, or for a member whose filter they pass."""
    lag_s: float | None
    """Seconds since the oldest unsettled message was stored, None without such a message."""
    lag_bytes: int
    """Bytes of the records of the messages that are not settled."""
    waiting_count: int = 0
    """Messages that were given back, or whose lease is over: they wait for the next attempt."""
    next_attempt: datetime | None = None
    """The earliest time when such a message may be delivered. A time in the past means that no member receives."""
    waits_for: tuple[tuple[int, int], ...] = ()
    """The queues that are processed before this queue, if an ordered group's topic got this queue later.

    Pairs of a queue id and the queue offset up to which it is processed first.
    """
    standstills: tuple[str, ...] = ()
    """The reasons why unsettled messages make no progress, as text."""
    standstill_queue_offsets: tuple[int | None, ...] = ()
    """For each reason the queue offset of the message that causes it, None if no single message does."""
    is_asked: bool | None = None
    """A member asks for messages of the topic, or asked within 10 s. None from a Delivery that does not tell."""


@dataclass(frozen=True, slots=True)
class ShareFilter:
    """A current filter of members of a group for a topic. Several filters of a topic mean that members differ."""

    topic: str
    tags: str
    where: str


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A group, its policy and its progress. In lists the queues, dead letters and filters are left out."""

    name: str
    policy: SharePolicy
    queues: tuple[ShareQueue, ...]
    dead_letter_count: int
    filters: tuple[ShareFilter, ...] = ()
    """The current filters of its members."""


@dataclass(frozen=True, slots=True)
class ShareMove:
    """The old and new position of a group in a queue, and the number of messages in flight that count as settled."""

    queue_id: int
    from_queue_offset: int
    to_queue_offset: int
    settled_count: int


MessageStage = Literal["no_position", "not_delivered", "in_flight", "waiting", "dying", "held", "settled"]
STAGES: tuple[MessageStage, ...] = get_args(MessageStage)
"""By their numbers in the API, from 1."""


@dataclass(frozen=True, slots=True)
class MessageState:
    """The state of a message at a group."""

    stage: MessageStage
    """`no_position`: the group has not begun with the queue. `not_delivered`: no member got it yet. `in_flight`: a
    member has it. `waiting`: for its next attempt. `dying`: its dead letter is being written. `held`: for another
    message with its sharding key, or for a member whose filter it passes. `settled`: also as a dead letter.
    """
    attempt: int = 0
    """Number of deliveries of a message that is in flight, waits or dies."""
    since: datetime | None = None
    """In flight: when its receiver got it."""
    until: datetime | None = None
    """In flight: the end of the lease. Waiting: the earliest time of the next delivery."""
    connection_number: int = 0
    """The receiver's connection in Delivery's list of connections, 0 if it is not known."""
    before_count: int = 0
    """Not delivered: number of messages before it in its queue that are not delivered."""
    behind_queue_offset: int | None = None
    """Held: the message in flight with the same sharding key."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that its group could not process. Values that it does not carry are None, "" or 0."""

    message: Message
    """The message as it is stored among the dead letters; its store time is the time when it became a dead letter."""
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
    """The result of a replay for an original topic. `refusal` is the reason why the topic accepts no letters."""

    topic: str
    replayed_count: int
    refused_count: int
    refusal: str


@dataclass(frozen=True, slots=True)
class Replay:
    """The progress of a replay: entries that were examined, and the results of the selected letters."""

    passed_count: int
    total_count: int
    topics: tuple[ReplayedTopic, ...]
    done_before_count: int
    """Selected letters that another caller has replayed or received."""
    is_done: bool

    @property
    def replayed_count(self) -> int:
        """Number of letters that were appended to their original topics."""
        return sum(topic.replayed_count for topic in self.topics)

    @property
    def refused_count(self) -> int:
        """Number of letters that stay dead letters."""
        return sum(topic.refused_count for topic in self.topics)


def policy_message(policy: SharePolicy) -> group_service_pb2.GroupPolicy:
    """Return a policy as a message for a request."""
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
    """Return the call that gets a group."""
    return Call(group_service_pb2.GetGroupRequest(group=group), group_in)


def group_in(answer: Any) -> ShareGroup:
    """Return the group of an answer."""
    return group_of(answer.group)


def get_message_states(group: str, places: Iterable[tuple[str, int, int]]) -> Call[tuple[MessageState, ...]]:
    """Return the call that gets the states of messages."""
    asked = [
        group_service_pb2.MessagePlace(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
        for topic, queue_id, queue_offset in places
    ]
    request = group_service_pb2.GetMessageStatesRequest(group=group, messages=asked)
    return Call(request, lambda answer: tuple(map(_state_of, answer.states)))


def _state_of(message: Any) -> MessageState:
    times = {
        name: getattr(message, name).ToDatetime(tzinfo=UTC) if message.HasField(name) else None
        for name in ("since", "until")
    }
    behind = message.behind_queue_offset if message.HasField("behind_queue_offset") else None
    return of_fields(MessageState, message, stage=STAGES[message.stage - 1], behind_queue_offset=behind, **times)


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
    """Return the selection of dead letters for a request."""
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
    causes = tuple(one.queue_offset if one.HasField("queue_offset") else None for one in message.standstills)
    return of_fields(
        ShareQueue,
        message,
        lag_s=lag_s,
        next_attempt=next_attempt,
        waits_for=waits_for,
        standstills=tuple(one.text for one in message.standstills),
        standstill_queue_offsets=causes,
        is_asked=message.is_asked if message.HasField("is_asked") else None,
    )


def _seconds(value: Any) -> float:
    return float(value.seconds + value.nanos / 1e9)
