# SPDX-License-Identifier: Apache-2.0
"""Decoding: record batches of messages, with bodies as columns.

Invariant: each message has exactly a row, whatever its body is. A body that can't be decoded has nulls in the columns
of the decoder, its bytes as they are stored in `bad_body`, and a text in `bad_reason`.
Bodies that a client compressed are inflated. A batch with many large bodies comes in pieces, so that memory is bounded.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from reput_client.core.compression import BODY_SIZE_BYTES_MAX, COMPRESSED_FLAG, inflate
from reput_client.frames.asked import DEFAULT_COLUMNS
from reput_client.frames.columns import VALUE
from reput_client.frames.decode.decoder import Decoder

BAD_BODY, BAD_REASON = "bad_body", "bad_reason"
SYS_FLAG = "sys_flag"
PIECE_SIZE_BYTES = 16 << 20
"""Bodies of a piece, inflated; the last of them may be larger."""
REASON_CHARACTERS_MAX = 300


class Decoding:
    """The columns of a read whose bodies are decoded.

    They are the given columns of the messages (all default columns but `value`, if none are given), the columns of the
    decoder, `bad_body` and `bad_reason`. Raises ValueError for columns with the same name.
    """

    def __init__(self, decoder: Decoder, columns: tuple[str, ...] | None) -> None:
        self._decoder = decoder
        self._kept = tuple(name for name in DEFAULT_COLUMNS if name != VALUE) if columns is None else columns
        self.needed = tuple(dict.fromkeys((*self._kept, VALUE, SYS_FLAG)))
        """The columns of messages to read."""
        self._decoded = [decoder.type.field(index) for index in range(decoder.type.num_fields)]
        names = [*self._kept, *(decoder.prefix + field.name for field in self._decoded), BAD_BODY, BAD_REASON]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two columns have the name {name!r}: give the decoder a prefix, or leave one out")

    def schema(self, needed: pa.Schema) -> pa.Schema:
        """Return the schema of the rows, for the schema of the columns to read."""
        return pa.schema(
            [
                *(needed.field(name) for name in self._kept),
                *(pa.field(self._decoder.prefix + field.name, field.type) for field in self._decoded),
                pa.field(BAD_BODY, pa.binary()),
                pa.field(BAD_REASON, pa.string()),
            ]
        )

    def batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch of messages, in one piece or more."""
        rows: list[dict[str, Any] | None] = []
        reasons: dict[int, str] = {}
        first = size_bytes = 0
        for position, (value, flag) in enumerate(zip(batch[VALUE], batch[SYS_FLAG], strict=True)):
            try:
                body = _body(value.as_py() or b"", flag.as_py() or 0)
                size_bytes += len(body)
                rows.append(self._decoder.row(body))
            except Exception as error:  # noqa: BLE001 - bodies are anybody's bytes, and no body ends a read
                rows.append(None)
                reasons[position - first] = _reason(error)
            if size_bytes >= PIECE_SIZE_BYTES:
                yield self._piece(batch.slice(first, len(rows)), rows, reasons)
                first, size_bytes, rows, reasons = position + 1, 0, [], {}
        if rows:
            yield self._piece(batch.slice(first, len(rows)), rows, reasons)

    def _piece(
        self, batch: pa.RecordBatch, rows: list[dict[str, Any] | None], reasons: dict[int, str]
    ) -> pa.RecordBatch:
        decoded: Any = pa.concat_arrays(_arrays(rows, self._decoder.type, reasons, 0))
        bad: list[bytes | None] = [None] * len(rows)
        for position in reasons:
            bad[position] = batch[VALUE][position].as_py()
        return pa.RecordBatch.from_arrays(
            [
                *(batch[name] for name in self._kept),
                *decoded.flatten(),
                pa.array(bad, pa.binary()),
                pa.array([reasons.get(position) for position in range(len(rows))], pa.string()),
            ],
            schema=self.schema(batch.schema),
        )


def _body(stored: bytes, sys_flag: int) -> bytes:
    """Return a body as it was sent. Raises BodyError, and ModuleNotFoundError without the library of its codec."""
    if not sys_flag & COMPRESSED_FLAG:
        return stored
    return inflate(stored, sys_flag, size_bytes_max=BODY_SIZE_BYTES_MAX, place="the body")


def _arrays(
    rows: list[dict[str, Any] | None], kind: pa.StructType, reasons: dict[int, str], first: int
) -> "list[pa.Array[Any]]":
    """Return rows as arrays. A row that its type can't hold becomes null, with a reason."""
    try:
        return [pa.array(rows, kind)]
    except Exception as error:  # noqa: BLE001 - Arrow's errors, and those of Python's conversions
        if len(rows) == 1:
            reasons[first] = _reason(error)
            return [pa.array([None], kind)]
    middle = len(rows) // 2
    return [*_arrays(rows[:middle], kind, reasons, first), *_arrays(rows[middle:], kind, reasons, first + middle)]


def _reason(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.encode(errors="replace").decode()[:REASON_CHARACTERS_MAX]
