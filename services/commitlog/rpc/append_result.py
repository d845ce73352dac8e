# SPDX-License-Identifier: Apache-2.0
"""AppendResult and its enclosing messages, as bytes: the columns of a batch are sent as the kernel wrote them.

A test reads the bytes with the stubs of protos/reput/commitlog/v1/append_service.proto.
"""

import sys
from functools import cache

from google.rpc.status_pb2 import Status

from libs.formats import fields
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records.host import Host
from libs.kernel.append.result_cy import encode_append_result
from services.commitlog.engine.write.append import AppendedBatch

assert sys.byteorder == "little", "packed columns are little-endian, as protobuf wants them"


class AppendResultEncoder:
    """The encoder of a store's results. Each result contains the store's address."""

    def __init__(self, store_host: Host) -> None:
        host = length_delimited(fields.HOST_ADDRESS, store_host.address) + int_field(fields.HOST_PORT, store_host.port)
        self._store_host = length_delimited(fields.APPEND_RESULT_STORE_HOST, host)

    def response(self, batch: AppendedBatch, durability: int, *, is_late: bool = False) -> bytes:
        """Return a serialized AppendResponse. An AppendOutcome with a result has the same bytes."""
        return encode_append_result(
            batch.start_physical_offset,
            batch.end_physical_offset,
            batch.store_time_ms,
            durability,
            batch.is_repeated,
            batch.ahead_ms,
            is_late,
            batch.physical_offsets,
            batch.queue_offsets,
            batch.queue_ids,
            self._store_host,
        )


@cache
def encoder_of(store_host: Host) -> AppendResultEncoder:
    """Return the encoder of a store. A process has one store, which it may open several times."""
    return AppendResultEncoder(store_host)


def error_outcome(status: Status) -> bytes:
    """Return a serialized AppendOutcome with an error."""
    return length_delimited(fields.APPEND_OUTCOME_ERROR, status.SerializeToString())


def stream_response(outcomes: list[bytes]) -> bytes:
    """Return a serialized AppendStreamResponse."""
    return b"".join(length_delimited(fields.APPEND_STREAM_RESPONSE_OUTCOMES, outcome) for outcome in outcomes)
