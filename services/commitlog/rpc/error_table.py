# SPDX-License-Identifier: Apache-2.0
"""The gRPC status of each CommitLog error, a row for each, only here. docs/errors.md has the reasons."""

import grpc

from libs.machine.errors import DiskFull
from libs.runtime.rpc.errors import ErrorRow, ErrorTable
from libs.segments.errors import OffsetBeyondEnd, OffsetTrimmed, SegmentUnreadable, StoreFull
from services.commitlog import errors

_CODES = grpc.StatusCode
_ARGUMENT = ("field", "value", "limit")

ERROR_TABLE: ErrorTable = {
    errors.QueueOutOfRange: ErrorRow(_CODES.INVALID_ARGUMENT, "QUEUE_OUT_OF_RANGE", ("topic", *_ARGUMENT)),
    errors.QueueNotHere: ErrorRow(_CODES.FAILED_PRECONDITION, "QUEUE_NOT_HERE", ("topic", "field", "value", "version")),
    errors.ShareOutdated: ErrorRow(_CODES.ABORTED, "SHARE_OUTDATED", ("topic", "version", "field")),
    errors.BatchEmpty: ErrorRow(_CODES.INVALID_ARGUMENT, "BATCH_EMPTY", ("field",)),
    errors.BatchTooLarge: ErrorRow(_CODES.INVALID_ARGUMENT, "BATCH_TOO_LARGE", _ARGUMENT),
    errors.TooManyNewQueues: ErrorRow(_CODES.RESOURCE_EXHAUSTED, "WINDOW_FULL", _ARGUMENT, retry_after_ms=100),
    errors.MessageTooLarge: ErrorRow(_CODES.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", _ARGUMENT),
    errors.BadProperties: ErrorRow(_CODES.INVALID_ARGUMENT, "BAD_PROPERTIES", ("field",)),
    errors.PropertiesTooLarge: ErrorRow(_CODES.INVALID_ARGUMENT, "PROPERTIES_TOO_LARGE", _ARGUMENT),
    errors.DelayNotSupported: ErrorRow(_CODES.INVALID_ARGUMENT, "DELAY_NOT_SUPPORTED", ("field", "value", "limit")),
    errors.WriterSequenceGap: ErrorRow(
        _CODES.FAILED_PRECONDITION, "WRITER_SEQUENCE_GAP", ("field", "value", "writer_id", "expected")
    ),
    errors.WriterContentDiffers: ErrorRow(
        _CODES.ALREADY_EXISTS, "WRITER_CONTENT_DIFFERS", ("field", "value", "writer_id")
    ),
    errors.WriterForgotten: ErrorRow(_CODES.FAILED_PRECONDITION, "WRITER_FORGOTTEN", ("field", "value", "writer_id")),
    errors.TopicExists: ErrorRow(_CODES.ALREADY_EXISTS, "TOPIC_EXISTS", ("topic", "field")),
    errors.TopicForbidden: ErrorRow(_CODES.PERMISSION_DENIED, "TOPIC_FORBIDDEN", ("topic", "permission", "field")),
    errors.NotARecord: ErrorRow(_CODES.INVALID_ARGUMENT, "NOT_A_RECORD", ("value", "field")),
    errors.BelowMinOffset: ErrorRow(_CODES.OUT_OF_RANGE, "OFFSET_TRIMMED", ("value", "min", "field")),
    errors.BeyondMaxOffset: ErrorRow(_CODES.OUT_OF_RANGE, "OFFSET_BEYOND_END", ("value", "max", "field")),
    OffsetTrimmed: ErrorRow(_CODES.OUT_OF_RANGE, "OFFSET_TRIMMED", ("value", "min")),
    OffsetBeyondEnd: ErrorRow(_CODES.OUT_OF_RANGE, "OFFSET_BEYOND_END", ("value", "max")),
    SegmentUnreadable: ErrorRow(_CODES.DATA_LOSS, "RECORD_DAMAGED", ("segment", "position", "reason")),
    errors.AppendsRefused: ErrorRow(_CODES.RESOURCE_EXHAUSTED, "STORE_FULL", retry_after_ms=10_000),
    StoreFull: ErrorRow(_CODES.RESOURCE_EXHAUSTED, "STORE_FULL", retry_after_ms=10_000),
    DiskFull: ErrorRow(_CODES.RESOURCE_EXHAUSTED, "STORE_FULL", retry_after_ms=10_000),
    errors.StoreReplaced: ErrorRow(_CODES.UNAVAILABLE, "STORE_REPLACED", retry_after_ms=1_000),
    errors.QueueOffsetsUnknown: ErrorRow(_CODES.UNAVAILABLE, "QUEUE_OFFSETS_UNKNOWN", retry_after_ms=1_000),
    errors.StoreSealed: ErrorRow(_CODES.FAILED_PRECONDITION, "STORE_SEALED"),
    errors.StreamIdle: ErrorRow(_CODES.UNAVAILABLE, "STREAM_IDLE", ("limit_ms",), retry_after_ms=0),
    errors.AfterRefusal: ErrorRow(_CODES.ABORTED, "AFTER_REFUSAL"),
    errors.NotEnoughReplicas: ErrorRow(
        _CODES.UNAVAILABLE, "NOT_ENOUGH_REPLICAS", ("in_sync", "needed"), retry_after_ms=1_000
    ),
    errors.ReplicaBehind: ErrorRow(_CODES.UNAVAILABLE, "REPLICA_BEHIND", ("replica_id",), retry_after_ms=1_000),
    errors.MayLoseData: ErrorRow(_CODES.FAILED_PRECONDITION, "MAY_LOSE_DATA"),
    errors.NotLeader: ErrorRow(_CODES.UNAVAILABLE, "NOT_LEADER", ("leader",)),
    errors.LeaseOver: ErrorRow(_CODES.UNAVAILABLE, "LEASE_OVER"),
    errors.NotElected: ErrorRow(_CODES.FAILED_PRECONDITION, "NOT_ELECTED"),
    errors.HistoryDiffers: ErrorRow(_CODES.FAILED_PRECONDITION, "HISTORY_DIFFERS", ("mine", "theirs")),
    errors.StaleEpoch: ErrorRow(_CODES.ABORTED, "STALE_EPOCH", ("epoch", "field")),
}
