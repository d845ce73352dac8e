# SPDX-License-Identifier: Apache-2.0
"""Waits at Delivery: messages wait for their time, and transactions for their end."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from reput_client import DelayedMessage, DelayLevel, OpenTransaction
from reput_client.core.answers import of_fields

from services.console.pages.mask import Mask
from services.console.pages.page import Gap, Page, command
from services.console.pages.rows import MessageRow, row_of

ROWS_OF_A_PAGE = 50


class DelayedQuestion(Struct, frozen=True):
    """The delayed messages that were asked for. Empty texts select nothing."""

    topic: str = ""
    key: str = ""
    """A key or a unique id."""
    start: str = ""
    """The earliest due time, as it was typed."""
    end: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    after: str = ""
    """The token of the page: where the list goes on."""


class DelayedRow(Struct, frozen=True):
    """A message that waits for its time."""

    topic: str
    """The topic to which it is delivered."""
    delivery_time_ms: int
    is_due: bool
    """Its time has come: it is delivered next."""
    message_id: str
    """The id to cancel it by."""
    row: MessageRow
    """The message as it is stored where it waits."""
    cancel_command: str


class LevelRow(Struct, frozen=True):
    """A delay level that has messages, or stands still."""

    level: int
    delay_s: float
    waiting_count: int
    lateness_s: float
    last_error: str


class DelayedPage(Page, frozen=True, kw_only=True):
    """Messages that wait for their time, a part of the list at a time."""

    template: ClassVar = "delayed.html"

    has_delivery: bool
    question: DelayedQuestion
    refusal: str = ""
    """Why the question can't be answered."""
    rows: tuple[DelayedRow, ...] = ()
    levels: tuple[LevelRow, ...] = ()
    next_token: str = ""
    """`after` of the next part; empty at the end."""


class TransactionRow(Struct, frozen=True):
    """A transaction that has not ended: consumers do not see its message."""

    id: str
    offset_message_id: str
    group: str
    topic: str
    queue_id: int
    row: MessageRow | None
    """Its message, None if it could not be read."""
    begun_ms: int
    check_count: int
    next_check_ms: int | None
    """When producers are asked next, or when the message is given up."""
    commit_command: str
    rollback_command: str


class TransactionsPage(Page, frozen=True, kw_only=True):
    """Open transactions, a part of the list at a time, the oldest first."""

    template: ClassVar = "transactions.html"

    has_delivery: bool
    group: str
    """Only transactions of this producer group."""
    refusal: str = ""
    rows: tuple[TransactionRow, ...] = ()
    next_token: str = ""
    has_checked_topic: bool = False
    """The store has the topic of messages whose producers were asked too often; the first such message makes it."""


def delayed_page(
    question: DelayedQuestion,
    gaps: tuple[Gap, ...],
    *,
    now_ms: int,
    mask: Mask,
    has_delivery: bool = True,
    refusal: str = "",
    messages: Sequence[DelayedMessage] = (),
    levels: Sequence[DelayLevel] = (),
    next_token: str = "",
) -> DelayedPage:
    """Return the page of the messages that wait for their time."""
    options = [
        word
        for name, value in (("--key", question.key), ("--start", question.start), ("--end", question.end))
        for word in ((f"{name}={value}",) if value else ())
    ]
    words = ("delay", "list", *((question.topic,) if question.topic else ()), *options)
    return DelayedPage(
        commands=(command(*words), command("delay", "cancel", question.topic or "TOPIC", "ID")),
        gaps=gaps,
        has_delivery=has_delivery,
        question=question,
        refusal=refusal,
        rows=tuple(
            of_fields(
                DelayedRow,
                one,
                is_due=one.delivery_time_ms <= now_ms,
                row=row_of(one.message, mask),
                cancel_command=command("delay", "cancel", one.topic, one.message_id),
            )
            for one in messages
        ),
        levels=tuple(of_fields(LevelRow, one) for one in levels if one.waiting_count or one.last_error),
        next_token=next_token,
    )


def transactions_page(
    group: str,
    gaps: tuple[Gap, ...],
    *,
    has_delivery: bool = True,
    refusal: str = "",
    transactions: Sequence[tuple[OpenTransaction, MessageRow | None]] = (),
    next_token: str = "",
    has_checked_topic: bool = False,
) -> TransactionsPage:
    """Return the page of the open transactions."""
    of_group = (f"--group={group}",) if group else ()
    return TransactionsPage(
        commands=(command("tx", "list", *of_group), command("tx", "resolve", "ID", "--rollback")),
        gaps=gaps,
        has_delivery=has_delivery,
        group=group,
        refusal=refusal,
        rows=tuple(_transaction_row(one, row) for one, row in transactions),
        next_token=next_token,
        has_checked_topic=has_checked_topic,
    )


def waiting_row(row: MessageRow, topic: str, *, due_ms: int | None = None) -> MessageRow:
    """Return a waiting message as a row of its topic: a delayed message with its time, else that of a transaction."""
    return replace(row, topic=topic, waits_as="transaction" if due_ms is None else "delayed", due_ms=due_ms)


def _transaction_row(one: OpenTransaction, row: MessageRow | None) -> TransactionRow:
    return of_fields(
        TransactionRow,
        one,
        row=row,
        begun_ms=_ms(one.begun),
        next_check_ms=None if one.next_check is None else _ms(one.next_check),
        commit_command=command("tx", "resolve", one.id, "--commit"),
        rollback_command=command("tx", "resolve", one.id, "--rollback"),
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
