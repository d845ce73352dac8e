# SPDX-License-Identifier: Apache-2.0
"""The columns of the source: names and Spark types. docs/spark-reference.md describes their meanings.

Their Arrow types are the client's (reput_client.frames.columns), which executors import where they read.

Invariant: rows have exactly the columns of the schema that Spark planned with, in its order; Spark refuses any other
columns. A schema given by the user is a projection: only its columns are requested from the Indexer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput_spark.errors import BadSchema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


SPARK_TYPES = {
    "key": "string",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "tag": "string",
    "properties": "map<string,string>",
    "born_timestamp": "timestamp",
    "physical_offset": "bigint",
    "message_id": "string",
    "flag": "int",
    "sys_flag": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Every column with its type. Columns after born_timestamp come only when the user's schema names them."""

KEY, BINARY = "key", "binary"
"""The only column with a choice of types: text, or binary as in Spark's Kafka source."""

NULLABILITY = ("nullable", "containsNull", "valueContainsNull")
"""Names in Spark's JSON of a schema: of a column, of an array's elements, and of a map's values."""

HEADERS, PROPERTIES = "headers", "properties"
"""Properties in the form of Spark's Kafka source: the Indexer sends properties; the reader turns them into headers."""

DEFAULT_COLUMNS = tuple(SPARK_TYPES)[: tuple(SPARK_TYPES).index("born_timestamp") + 1]
"""Columns of a read without a schema of the user."""

LOG_APPEND_TIME = 1
"""Value of timestampType, as in Spark's Kafka source: the timestamp is the store's."""


def spark_type(name: str, *, has_binary_key: bool) -> str:
    """Return the type of a column."""
    return BINARY if name == KEY and has_binary_key else SPARK_TYPES[name]


def projection(schema: StructType) -> tuple[str, ...]:
    """Return the column names of a schema. Raises BadSchema for an unknown or repeated column or a wrong type.

    Spark plans with the user's schema as it is, and would refuse rows of another nullability in each task: it is
    refused here, in a single error.
    """
    names: list[str] = []
    if not schema.fields:
        raise BadSchema("it names no column: name one, or leave the schema out; reput_spark.count counts messages")
    for field in schema.fields:
        expected = SPARK_TYPES.get(field.name)
        if expected is None:
            raise BadSchema(f"no column {field.name!r}; there are {', '.join(SPARK_TYPES)}")
        found = field.dataType.simpleString()
        if found != expected and (field.name, found) != (KEY, BINARY):
            raise BadSchema(f"column {field.name!r} is {expected}, not {found}")
        if field.name in names:
            raise BadSchema(f"column {field.name!r} is named twice")
        if _excludes_null(field.jsonValue()):
            raise BadSchema(f"column {field.name!r} is nullable: leave nullable=False out of the schema")
        names.append(field.name)
    return tuple(names)


def _excludes_null(described: object) -> bool:
    """Return whether a field, as Spark describes it in JSON, or a part of its type can't be null."""
    if isinstance(described, list):
        return any(map(_excludes_null, described))
    if not isinstance(described, dict):
        return False
    return any(described.get(name) is False for name in NULLABILITY) or any(map(_excludes_null, described.values()))


def wants_binary_key(schema: StructType) -> bool:
    """Return whether a schema wants keys as bytes."""
    return any((field.name, field.dataType.simpleString()) == (KEY, BINARY) for field in schema.fields)
