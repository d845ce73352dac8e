# SPDX-License-Identifier: Apache-2.0
"""Standstill: why a group makes no progress in a queue, derived from its present state.

Callers: the event loop's thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from libs.formats.records.delivery_record import Policy
from services.delivery.engine.receive.feed import FeedFailure
from services.delivery.engine.state.queue import QueueState


class Reason(StrEnum):
    """The reason for which a queue stands still. The API has the same names."""

    PAUSED = "PAUSED"
    KEY_BLOCKED = "KEY_BLOCKED"
    OPEN_LIMIT = "OPEN_LIMIT"
    WAITS_FOR_ATTEMPT = "WAITS_FOR_ATTEMPT"
    OLDER_QUEUES = "OLDER_QUEUES"
    FEED_FAILS = "FEED_FAILS"


@dataclass(frozen=True, slots=True)
class Standstill:
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
    failure: FeedFailure | None,
) -> list[Standstill]:
    """Return all reasons that hold up the unsettled messages of a queue."""
    found: list[Standstill] = []
    if policy.is_paused:
        found.append(Standstill(Reason.PAUSED, "the group is paused"))
    if (blocked := queue.first_blocked) is not None:
        held_count, flight = blocked
        text = f"{held_count} messages wait for message {flight.offset}, which has the same ordering key"
        found.append(Standstill(Reason.KEY_BLOCKED, f"{text} and attempt {flight.attempt}", flight.offset))
    if queue.open_count >= open_count_max:
        text = f"{queue.open_count} messages are in flight, wait or are held; queue_open_count_max is {open_count_max}"
        found.append(Standstill(Reason.OPEN_LIMIT, text, queue.next))
    if due_ms:
        found.append(Standstill(Reason.WAITS_FOR_ATTEMPT, f"{len(due_ms)} messages wait for the next attempt"))
    if waits_for:
        first = min(waits_for)
        text = f"{len(waits_for)} queues are worked off first, among them queue {first}"
        found.append(Standstill(Reason.OLDER_QUEUES, text, waits_for[first]))
    if failure is not None:
        found.append(Standstill(Reason.FEED_FAILS, f"nothing new can be read: {failure.error}", failure.queue_offset))
    return found
