# SPDX-License-Identifier: Apache-2.0
"""AppendResult and what wraps it, as bytes: the columns of a batch travel as the kernel left them.

Field numbers stand in protos/reput/commitlog/v1/append_service.proto; a test reads the bytes with its stubs.
"""

import sys

from google.rpc.status_pb2 import Status

from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records.host import Host
from services.commitlog.engine.write.append import AppendedBatch

assert sys.byteorder == "little", "packed columns are little-endian, as protobuf wants them"

RESULT, ERROR, OUTCOMES = 1, 2, 1
START, END, STORE_TIME, DURABILITY, PHYSICAL_OFFSETS, QUEUE_OFFSETS, QUEUE_IDS, STORE_HOST, IS_REPEATED = range(1, 10)
HOST_ADDRESS, HOST_PORT = 1, 2


class AppendResultEncoder:
    """Encodes results of one store, whose address is part of each."""

    def __init__(self, store_host: Host) -> None:
        host = length_delimited(HOST_ADDRESS, store_host.address) + int_field(HOST_PORT, store_host.port)
        self._store_host = length_delimited(STORE_HOST, host)

    def response(self, batch: AppendedBatch, durability: int) -> bytes:
        """A serialized AppendResponse; an AppendOutcome with a result is the same bytes."""
        result = b"".join(
            (
                int_field(START, batch.start_physical_offset),
                int_field(END, batch.end_physical_offset),
                int_field(STORE_TIME, batch.store_time_ms),
                int_field(DURABILITY, durability),
                length_delimited(PHYSICAL_OFFSETS, batch.physical_offsets),
                length_delimited(QUEUE_OFFSETS, batch.queue_offsets),
                length_delimited(QUEUE_IDS, batch.queue_ids),
                self._store_host,
                int_field(IS_REPEATED, batch.is_repeated),
            )
        )
        return length_delimited(RESULT, result)


def error_outcome(status: Status) -> bytes:
    """A serialized AppendOutcome with an error."""
    return length_delimited(ERROR, status.SerializeToString())


def stream_response(outcomes: list[bytes]) -> bytes:
    """A serialized AppendStreamResponse."""
    return b"".join(length_delimited(OUTCOMES, outcome) for outcome in outcomes)
