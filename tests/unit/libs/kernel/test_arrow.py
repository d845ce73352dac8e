# SPDX-License-Identifier: Apache-2.0
"""record_columns gives buffers that pyarrow takes as they are, with the values that libs.formats decodes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from libs.formats.records import message_id, properties, record
from tests.support.records import encoded
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.test_encode import SHAPES

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
TYPES = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "timestamp[us]": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def to_arrow(column: Any) -> Any:
    """The column as a pyarrow array over the same buffers."""
    buffers = [None if part is None else pa.py_buffer(part) for part in (column.validity, column.offsets, column.data)]
    if column.children:
        names, values = map(to_arrow, column.children)
        fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
        pairs = pa.StructArray.from_arrays([names, values], fields=fields)
        kind = pa.map_(pa.string(), pa.string())
        return pa.Array.from_buffers(kind, column.row_count, buffers[:2], column.null_count, children=[pairs])
    if column.offsets is None:
        del buffers[1]
    return pa.Array.from_buffers(TYPES[column.kind], column.row_count, buffers, column.null_count)


def some_records(times: int = 1) -> tuple[bytes, Any, Any]:
    """Records of every shape, with positions and sizes as numpy arrays."""
    shapes = [{**shape, "born_time_ms": 5 + number} for number, shape in enumerate(SHAPES)]
    raw = [encoded(2**40 + number, **shape) for number, shape in enumerate(shapes)] * times
    sizes = np.array([len(one) for one in raw], np.int32)
    return b"".join(raw), np.cumsum(sizes, dtype=np.int64) - sizes, sizes


def expected(name: str, one: record.Record) -> Any:
    """The value of a column for a record."""
    try:
        one.properties.decode()
        pairs = [
            (key.decode(), value.decode())
            for key, value in properties.pieces(one.properties)
            if key != properties.CRC32
        ]
    except UnicodeDecodeError:
        pairs = None
    shown = dict(pairs or [])
    values: dict[str, Any] = {
        "key": shown.get("KEYS"), "tag": shown.get("TAGS"), "value": one.body, "topic": one.topic,
        "properties": pairs, "partition": one.queue_id, "offset": one.queue_offset,
        "physical_offset": one.physical_offset, "flag": one.flag, "sys_flag": one.sys_flag,
        "timestamp": one.store_time_ms * 1000, "born_timestamp": one.born_time_ms * 1000,
        "message_id": message_id.encode_offset_id(one.store_host, one.physical_offset),
    }  # fmt: skip
    return values[name]


@pytest.mark.parametrize("times", [1, 3])
def test_every_column(build: Build, times: int) -> None:
    """Each column validates in full and has the records' values, nulls included."""
    data, positions, sizes = some_records(times)
    columns = build.arrow.record_columns(data, positions, sizes, len(sizes), sorted(build.arrow.COLUMN_NAMES))
    records = [record.decode(data, int(position)) for position in positions]
    assert len(columns) == 13
    for name, column in columns.items():
        made = to_arrow(column)
        made.validate(full=True)
        found = made.cast(pa.int64()) if column.kind == "timestamp[us]" else made
        assert found.to_pylist() == [expected(name, one) for one in records], name
        assert made.null_count == column.null_count


def test_times_that_readers_cannot_show_are_null(build: Build) -> None:
    """A time outside of the years 1 to 9999 is null.

    The first and the last time of this range are shown, and nothing overflows.
    """
    first, last = -62_135_596_800_000, 253_402_300_799_999
    times = [first, last, 5, last + 1, first - 1, 2**63 - 1, -(2**63), 1_795_844_647_000_000_000]
    raw = [encoded(2**40, born_time_ms=time_ms) for time_ms in times]
    sizes = np.array([len(one) for one in raw], np.int32)
    positions = np.cumsum(sizes, dtype=np.int64) - sizes
    columns = build.arrow.record_columns(b"".join(raw), positions, sizes, len(sizes), ["born_timestamp", "timestamp"])
    made = to_arrow(columns["born_timestamp"])
    made.validate(full=True)
    assert made.cast(pa.int64()).to_pylist() == [first * 1000, last * 1000, 5000, None, None, None, None, None]
    assert columns["timestamp"].null_count == 0


def test_no_records(build: Build) -> None:
    """No record gives empty columns of the right types."""
    columns = build.arrow.record_columns(b"", np.empty(0, np.int64), np.empty(0, np.int32), 0, ["value", "properties"])
    assert [to_arrow(column).to_pylist() for column in columns.values()] == [[], []]


def test_selected_rows_and_columns(build: Build) -> None:
    """Only the requested columns of the first records are returned, in the requested order."""
    data, positions, sizes = some_records()
    columns = build.arrow.record_columns(data, positions[::-1].copy(), sizes[::-1].copy(), 2, ["tag", "born_timestamp"])
    assert list(columns) == ["tag", "born_timestamp"]
    assert to_arrow(columns["born_timestamp"]).cast(pa.int64()).to_pylist() == [14000, 13000]


def test_what_cannot_be_columns(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged record and an unknown column are refused by position and name.

    A column past int32 offsets is refused, too.
    """
    data, positions, sizes = some_records()
    with pytest.raises(ValueError, match=r"position 1$"):
        build.arrow.record_columns(data, positions + 1, sizes, 1, ["value"])
    with pytest.raises(ValueError, match="no column 'body'"):
        build.arrow.record_columns(data, positions, sizes, 1, ["body"])
    monkeypatch.setattr(build.arrow, "OFFSET_MAX", 10)
    for name in ("value", "properties", "message_id"):
        with pytest.raises(ValueError, match="int32 offsets"):
            build.arrow.record_columns(data, positions, sizes, len(sizes), [name])
