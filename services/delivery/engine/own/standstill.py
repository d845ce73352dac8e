# SPDX-License-Identifier: Apache-2.0
"""Standstill: why a group makes no progress in a queue, derived from its present state.

Callers: the event loop's thread.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from libs.formats.records.delivery_record import Policy
from services.delivery.engine.receive.feed import FeedFailure
from services.delivery.engine.receive.parents import Unfinished
from services.delivery.engine.state.queue import QueueState


class Reason(StrEnum):
    """The reason for which a queue stands still. The API has the same names."""

    PAUSED = "PAUSED"
    KEY_BLOCKED = "KEY_BLOCKED"
    OPEN_LIMIT = "OPEN_LIMIT"
    WAITS_FOR_ATTEMPT = "WAITS_FOR_ATTEMPT"
    OLDER_QUEUES = "OLDER_QUEUES"
    FEED_FAILS = "FEED_FAILS"
    PARENT_QUEUES = "PARENT_QUEUES"


class Standstill(Struct, frozen=True):
    """A reason, its text, and the queue offset of the message that causes it, None if no single message does."""

    reason: Reason
    text: str
    queue_offset: int | None = None


def standstills(
    queue: QueueState,
    policy: Policy,
    *,
    open_count_max: int,
    due_ms: list[int],
    waits_for: Mapping[int, int],
    unfinished: Unfinished,
    failure: FeedFailure | None,
) -> list[Standstill]:
    """Return all reasons that hold up the unsettled messages of a queue."""
    found: list[Standstill] = []
    if policy.is_paused:
        found.append(Standstill(Reason.PAUSED, "the group is paused"))
    if (blocked := queue.first_blocked) is not None:
        held_count, flight = blocked
        text = f"{_messages(held_count, 'waits', 'wait')} for the message at offset {flight.offset}"
        text += f", which has the same ordering key and is in attempt {flight.attempt}"
        found.append(Standstill(Reason.KEY_BLOCKED, text, flight.offset))
    if queue.open_count >= open_count_max:
        text = f"{_messages(queue.open_count, 'is', 'are')} in flight, waiting or held; "
        text += f"queue_open_count_max is {open_count_max}"
        found.append(Standstill(Reason.OPEN_LIMIT, text, queue.next))
    if due_ms:
        text = f"{_messages(len(due_ms), 'waits', 'wait')} for the next attempt"
        found.append(Standstill(Reason.WAITS_FOR_ATTEMPT, text))
    if waits_for:
        first = min(waits_for)
        others = f"{len(waits_for)} queues are worked off first, among them queue {first}"
        text = f"queue {first} is worked off first" if len(waits_for) == 1 else others
        found.append(Standstill(Reason.OLDER_QUEUES, text, waits_for[first]))
    if unfinished:
        more = f", and {len(unfinished) - 1} more sealed queues" if len(unfinished) > 1 else ""
        text = f"its keys were in sealed queues, which are worked off first: {unfinished[min(unfinished)]}{more}"
        found.append(Standstill(Reason.PARENT_QUEUES, text))
    if failure is not None:
        found.append(Standstill(Reason.FEED_FAILS, f"nothing new can be read: {failure.error}", failure.queue_offset))
    return found


def _messages(count: int, one: str, more: str) -> str:
    """Return a count of messages with the form of the verb that it needs."""
    return f"1 message {one}" if count == 1 else f"{count} messages {more}"
