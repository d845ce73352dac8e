# SPDX-License-Identifier: Apache-2.0
"""The gRPC status and the reason of each of Delivery's errors. The shell has its own table for other errors."""

import grpc

from libs.requests.errors import WindowFull
from libs.runtime.rpc.errors import ErrorRow, ErrorTable
from services.delivery.errors import (
    DelayedNotFound,
    DelayedTooLate,
    GroupNotFound,
    HandleOutdated,
    JournalLost,
    JournalNotDurable,
    NotOwner,
    TransactionEnded,
    TransactionNotFound,
    TransactionRefused,
)

_CODES = grpc.StatusCode

ERROR_TABLE: ErrorTable = {
    HandleOutdated: ErrorRow(_CODES.FAILED_PRECONDITION, "HANDLE_OUTDATED", ("topic", "queue_id", "queue_offset")),
    GroupNotFound: ErrorRow(_CODES.NOT_FOUND, "GROUP_NOT_FOUND", ("group",)),
    TransactionNotFound: ErrorRow(_CODES.NOT_FOUND, "TRANSACTION_NOT_FOUND", ("transaction_id",)),
    TransactionEnded: ErrorRow(_CODES.FAILED_PRECONDITION, "TRANSACTION_ENDED", ("transaction_id", "ended_as")),
    TransactionRefused: ErrorRow(_CODES.FAILED_PRECONDITION, "TRANSACTION_REFUSED", ("transaction_id",)),
    DelayedNotFound: ErrorRow(_CODES.NOT_FOUND, "DELAYED_NOT_FOUND", ("topic", "message_id")),
    DelayedTooLate: ErrorRow(_CODES.FAILED_PRECONDITION, "DELAYED_TOO_LATE", ("topic", "message_id")),
    NotOwner: ErrorRow(_CODES.UNAVAILABLE, "RECOVERING", (), retry_after_ms=500),
    JournalNotDurable: ErrorRow(_CODES.UNAVAILABLE, "NOT_DURABLE_YET", (), retry_after_ms=1_000),
    JournalLost: ErrorRow(_CODES.UNAVAILABLE, "RECOVERING", (), retry_after_ms=500),
    WindowFull: ErrorRow(_CODES.RESOURCE_EXHAUSTED, "WINDOW_FULL", ("limit",), retry_after_ms=1_000),
}
