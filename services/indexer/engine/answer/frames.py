# SPDX-License-Identifier: Apache-2.0
"""Arrow IPC frames of a scan: records become columns with the requested names. The only module with pyarrow.

A frame is a whole IPC stream: schema, at most a single record batch, end. All fields are nullable, times are UTC in
microseconds, as Spark needs them. The kernel fills the buffers; this module creates no object per record. pyarrow takes
25 MB and some time: the first FrameEncoder loads it, so callers make one in a thread.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from libs.kernel.answer.arrow import ArrowColumn, record_columns
from libs.requests.errors import RecordDamaged
from services.indexer.engine.log.source import RecordBlock

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "tag", "properties", "born_timestamp",
    "physical_offset", "message_id", "flag", "sys_flag",
)  # fmt: skip
"""Every column that a scan can return, in the protocol's order."""

DEFAULT_COLUMNS = COLUMNS[:9]

Compression: TypeAlias = Literal["lz4", "zstd"] | None
COMPRESSIONS: dict[str, Compression] = {"": None, "lz4": "lz4", "zstd": "zstd"}


@cache
def column_types() -> dict[str, pa.DataType]:
    """Return the type of each column."""
    import pyarrow as pa

    text, time, integer = pa.string(), pa.timestamp("us", tz="UTC"), pa.int64()
    types = (
        text, pa.binary(), text, pa.int32(), integer, time, text, pa.map_(text, text), time,
        integer, text, pa.int32(), pa.int32(),
    )  # fmt: skip
    return dict(zip(COLUMNS, types, strict=True))


class FrameEncoder:
    """The encoder for the frames of a scan."""

    def __init__(self, columns: tuple[str, ...], compression: Compression) -> None:
        import pyarrow as pa

        self._columns, self._types = columns, [column_types()[name] for name in columns]
        fields = [pa.field(name, kind, nullable=True) for name, kind in zip(columns, self._types, strict=True)]
        self._schema = pa.schema(fields)
        self._options = pa.ipc.IpcWriteOptions(compression=compression)

    def encode(self, found: RecordBlock) -> memoryview:
        """Encode these records as a frame. Without records it has the schema only. Raises RecordDamaged."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=self._options) as writer:
            if len(found.sizes):
                writer.write_batch(self._batch(found))
        return memoryview(sink.getvalue())

    def _batch(self, found: RecordBlock) -> pa.RecordBatch:
        import pyarrow as pa

        positions, sizes = np.ascontiguousarray(found.positions), np.ascontiguousarray(found.sizes)
        try:
            columns = record_columns(found.records, positions, sizes, len(sizes), self._columns)
        except ValueError as error:
            raise RecordDamaged(segment="of a scan", position=0, reason=str(error)) from error
        arrays = [_array(columns[name], kind) for name, kind in zip(self._columns, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(column: ArrowColumn, kind: Any) -> pa.Array[Any]:
    import pyarrow as pa

    parts = (column.validity, column.offsets, column.data)
    validity, offsets, data = (None if part is None else pa.py_buffer(part.data) for part in parts)
    if not column.children:
        buffers = [validity, data] if offsets is None else [validity, offsets, data]
        return pa.Array.from_buffers(kind, column.row_count, buffers, column.null_count)
    names, values = (_array(child, pa.string()) for child in column.children)
    entries = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, column.row_count, [validity, offsets], column.null_count, children=[entries])
