# SPDX-License-Identifier: Apache-2.0
"""Arrow IPC frames of a scan: records become columns with the requested names. The only module with pyarrow.

A frame is a whole IPC stream: schema, at most a single record batch, end. All fields are nullable, times are UTC in
microseconds, as Spark needs them. The kernel fills the buffers; this module creates no object per record.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from libs.kernel.answer.arrow import ArrowColumn, record_columns
from libs.requests.errors import RecordDamaged
from services.indexer.engine.log.source import RecordBlock

_PROPERTIES = pa.map_(pa.string(), pa.string())
_ENTRY_FIELDS = [_PROPERTIES.key_field, _PROPERTIES.item_field]

COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "tag": pa.string(),
    "properties": _PROPERTIES,
    "born_timestamp": pa.timestamp("us", tz="UTC"),
    "physical_offset": pa.int64(),
    "message_id": pa.string(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
}
"""Every column that a scan can return, in the protocol's order."""

DEFAULT_COLUMNS = tuple(COLUMN_TYPES)[:9]

Compression: TypeAlias = Literal["lz4", "zstd"] | None
COMPRESSIONS: dict[str, Compression] = {"": None, "lz4": "lz4", "zstd": "zstd"}


class FrameEncoder:
    """The encoder for the frames of a scan."""

    def __init__(self, columns: tuple[str, ...], compression: Compression) -> None:
        self._columns = columns
        self._schema = pa.schema([pa.field(name, COLUMN_TYPES[name], nullable=True) for name in columns])
        self._options = pa.ipc.IpcWriteOptions(compression=compression)

    def encode(self, found: RecordBlock) -> memoryview:
        """Encode these records as a frame. Without records it has the schema only. Raises RecordDamaged."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=self._options) as writer:
            if len(found.sizes):
                writer.write_batch(self._batch(found))
        return memoryview(sink.getvalue())

    def _batch(self, found: RecordBlock) -> pa.RecordBatch:
        positions, sizes = np.ascontiguousarray(found.positions), np.ascontiguousarray(found.sizes)
        try:
            columns = record_columns(found.records, positions, sizes, len(sizes), self._columns)
        except ValueError as error:
            raise RecordDamaged(segment="of a scan", position=0, reason=str(error)) from error
        arrays = [_array(columns[name], COLUMN_TYPES[name]) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(column: ArrowColumn, kind: pa.DataType) -> pa.Array[Any]:
    parts = (column.validity, column.offsets, column.data)
    validity, offsets, data = (None if part is None else pa.py_buffer(part.data) for part in parts)
    if not column.children:
        buffers = [validity, data] if offsets is None else [validity, offsets, data]
        return pa.Array.from_buffers(kind, column.row_count, buffers, column.null_count)
    names, values = (_array(child, pa.string()) for child in column.children)
    entries = pa.StructArray.from_arrays([names, values], fields=_ENTRY_FIELDS)
    return pa.Array.from_buffers(kind, column.row_count, [validity, offsets], column.null_count, children=[entries])
