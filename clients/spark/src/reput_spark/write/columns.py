# SPDX-License-Identifier: Apache-2.0
"""The columns that a write accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput_spark.errors import BadSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from reput_spark.write.options import WriteOptions

WRITTEN_TYPES = {
    "value": ("binary", "string"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "tag": ("string",),
    "properties": ("map<string,string>",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "born_timestamp": ("timestamp",),
    "flag": ("int",),
}
"""Columns that a write accepts, with their types."""

IGNORED = ("offset", "timestamp", "timestampType", "physical_offset", "message_id", "sys_flag")
"""Columns of a read whose values the store sets. A write ignores them."""


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise BadSchema for columns that can't be written."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        expected = WRITTEN_TYPES.get(field.name)
        found = field.dataType.simpleString()
        if expected is None and field.name not in IGNORED:
            raise BadSchema(f"no column {field.name!r} can be written; these can: {', '.join(WRITTEN_TYPES)}")
        if expected is not None and found not in expected:
            raise BadSchema(f"column {field.name!r} must be {' or '.join(expected)}, not {found}")
        if names.count(field.name) > 1:
            raise BadSchema(f"column {field.name!r} is there twice")
    if "value" not in names:
        raise BadSchema("there is no column 'value', the body of the messages")
    if "topic" not in names and not options.topic:
        raise BadSchema("there is no column 'topic'; add one, or the option 'topic'")
    if options.has_sharding_key and "key" not in names:
        raise BadSchema("partitionBy=key needs a column 'key'")
