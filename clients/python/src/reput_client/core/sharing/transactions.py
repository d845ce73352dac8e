# SPDX-License-Identifier: Apache-2.0
"""Transactions as values."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from reput_client.core.types import NewMessage, from_ms

CHECK_AFTER_S_MAX = 40 * 86_400


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has not ended."""

    id: str
    offset_message_id: str
    """The offset message id of the half message, which was appended first."""
    group: str
    """The producer group."""
    topic: str
    queue_id: int
    """The queue of its message after a commit."""
    begun: datetime
    check_count: int
    """The number of checks that producers got."""
    next_check: datetime | None
    """The time of the next check, or when the message is moved to TRANS_CHECK_MAX_TIME_TOPIC."""


def open_transaction(message: Any) -> OpenTransaction:
    """Return a transaction of the API as a value."""
    return OpenTransaction(
        id=message.transaction_id,
        offset_message_id=message.offset_message_id,
        group=message.producer_group,
        topic=message.topic,
        queue_id=message.queue_id,
        begun=from_ms(message.begun.ToMilliseconds()),
        check_count=message.check_count,
        next_check=from_ms(message.next_check.ToMilliseconds()) if message.HasField("next_check") else None,
    )


def half_message(message: NewMessage, group: str, check_after_s: int) -> NewMessage:
    """Return the half message, which consumers do not get before the commit. Raises ValueError without a group."""
    if not group:
        raise ValueError("group must name the producer group that says how the transaction ends")
    own = {"TRAN_MSG": "true", "PGROUP": group}
    if check_after_s:
        own["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(check_after_s)
    return replace(message, properties={**message.properties, **own})


def seconds_of(check_after_s: float | None) -> int:
    """Return the time of the first check in whole seconds, 0 for the store's default. Raises ValueError."""
    if check_after_s is None:
        return 0
    if not 1 <= check_after_s <= CHECK_AFTER_S_MAX:
        raise ValueError(f"check_after_s is {check_after_s}, and must be 1 to {CHECK_AFTER_S_MAX}")
    return round(check_after_s)
