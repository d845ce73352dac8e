# SPDX-License-Identifier: Apache-2.0
"""Answers of a scan, whose frame stays in the buffer of gRPC.

A parsed protobuf message copies its frame twice, which costs a tenth of the reader's time. Its only copy is made where
Arrow needs it to be aligned.
Layout: reput/indexer/v1/scan_service.proto, ScanResponse.
"""

from typing import NamedTuple

from reput.indexer.v1.scan_service_pb2 import ScanRange, ScanResponse

ARROW_IPC_TAG = bytes((ScanResponse.ARROW_IPC_FIELD_NUMBER << 3 | 2,))
"""Length-delimited. Protobuf writes fields in order, so an answer begins with this if it has a frame."""
VARINT_SIZE_MAX = 10


class ScanAnswer(NamedTuple):
    """An answer: a whole Arrow IPC stream, empty for no rows, and the range of entries that it covers."""

    arrow_ipc: memoryview
    range: ScanRange

    @classmethod
    def FromString(cls, raw: bytes) -> "ScanAnswer":  # noqa: N802
        """Return the answer in these bytes. Raises google.protobuf.message.DecodeError."""
        start, end = _frame(raw)
        rest = ScanResponse.FromString(raw[end:])
        if rest.arrow_ipc or len(raw) < end:  # the frame is in another place, or missing
            whole = ScanResponse.FromString(raw)
            return cls(memoryview(whole.arrow_ipc), whole.range)
        return cls(memoryview(raw)[start:end], rest.range)


def _frame(raw: bytes) -> tuple[int, int]:
    """Return start and end of the frame from the first field, (0, 0) if the first field is another field."""
    if not raw.startswith(ARROW_IPC_TAG):
        return 0, 0
    size = 0
    for index, byte in enumerate(raw[1 : 1 + VARINT_SIZE_MAX]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return 2 + index, 2 + index + size
    return 0, 0
