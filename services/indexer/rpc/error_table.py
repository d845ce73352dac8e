# SPDX-License-Identifier: Apache-2.0
"""The gRPC codes and reasons of the Indexer's errors. The shell has its own table for the other errors."""

import grpc

from libs.requests.errors import ConsumerOffsetNotFound, WindowFull
from libs.runtime.rpc.errors import ErrorRow, ErrorTable
from libs.segments.errors import SegmentUnreadable
from services.indexer.errors import (
    GroupsUnknown,
    Incomplete,
    MessageNotFound,
    NotARecord,
    NotIndexed,
    OffsetBeyondEnd,
    OffsetTrimmed,
    QueueNotFound,
    RebuildRunning,
)

_CODES = grpc.StatusCode

ERROR_TABLE: ErrorTable = {
    OffsetBeyondEnd: ErrorRow(_CODES.OUT_OF_RANGE, "OFFSET_BEYOND_END", ("field", "value", "max")),
    OffsetTrimmed: ErrorRow(_CODES.OUT_OF_RANGE, "OFFSET_TRIMMED", ("field", "value", "min")),
    QueueNotFound: ErrorRow(_CODES.NOT_FOUND, "QUEUE_NOT_FOUND", ("topic", "queue_id")),
    MessageNotFound: ErrorRow(_CODES.NOT_FOUND, "MESSAGE_NOT_FOUND", ("message_id",)),
    ConsumerOffsetNotFound: ErrorRow(_CODES.NOT_FOUND, "CONSUMER_OFFSET_NOT_FOUND", ("group", "topic", "queue_id")),
    WindowFull: ErrorRow(_CODES.RESOURCE_EXHAUSTED, "WINDOW_FULL", ("limit",), retry_after_ms=1_000),
    SegmentUnreadable: ErrorRow(_CODES.DATA_LOSS, "RECORD_DAMAGED", ("segment", "position", "reason")),
    NotARecord: ErrorRow(_CODES.DATA_LOSS, "NOT_A_RECORD", ("value",)),
    Incomplete: ErrorRow(_CODES.UNAVAILABLE, "RECOVERING", ("indexed", "target"), retry_after_ms=100),
    NotIndexed: ErrorRow(_CODES.UNAVAILABLE, "RECOVERING", ("indexed", "target"), retry_after_ms=100),
    GroupsUnknown: ErrorRow(_CODES.UNAVAILABLE, "RECOVERING", (), retry_after_ms=500),
    RebuildRunning: ErrorRow(_CODES.FAILED_PRECONDITION, "RUN_IN_PROGRESS", ("started",)),
}
