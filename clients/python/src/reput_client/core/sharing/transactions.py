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
    """Of what was appended first."""
    group: str
    """The producer group."""
    topic: str
    queue_id: int
    """Where its message goes."""
    begun: datetime
    check_count: int
    """How often producers were asked."""
    next_check: datetime | None
    """When they are asked next, or the message is put aside, into TRANS_CHECK_MAX_TIME_TOPIC."""


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
    """Return a message that nobody sees until its transaction is committed. Raises ValueError without a group."""
    if not group:
        raise ValueError("group must name the producer group that says how the transaction ends")
    own = {"TRAN_MSG": "true", "PGROUP": group}
    if check_after_s:
        own["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(check_after_s)
    return replace(message, properties={**message.properties, **own})


def seconds_of(check_after_s: float | None) -> int:
    """Return when to ask first, in whole seconds, 0 for the store's own time. Raises ValueError."""
    if check_after_s is None:
        return 0
    if not 1 <= check_after_s <= CHECK_AFTER_S_MAX:
        raise ValueError(f"check_after_s is {check_after_s}, and must be 1 to {CHECK_AFTER_S_MAX}")
    return round(check_after_s)
