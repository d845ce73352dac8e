# SPDX-License-Identifier: Apache-2.0
"""Schemas of the user: an unreadable schema is refused while Spark plans, in a single line."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType
from reput_spark.errors import BadSchema
from reput_spark.read.schema import projection

HEADER = [StructField("key", StringType()), StructField("value", BinaryType(), nullable=False)]


@pytest.mark.parametrize(
    "field",
    [
        StructField("value", BinaryType(), nullable=False),
        StructField("properties", MapType(StringType(), StringType(), valueContainsNull=False)),
        StructField("headers", ArrayType(StructType(HEADER))),
        StructField("headers", ArrayType(StructType([*HEADER[:1], StructField("value", BinaryType())]), False)),
    ],
)
def test_a_schema_that_excludes_null_is_refused(field: StructField) -> None:
    """As a column or inside of a column: otherwise each task would refuse the rows, in thirty lines."""
    with pytest.raises(BadSchema, match=f"column '{field.name}' is nullable: leave nullable=False out"):
        projection(StructType([field]))


def test_a_schema_without_columns_is_refused() -> None:
    """Otherwise a count of it is 0, for any number of messages."""
    with pytest.raises(BadSchema, match="names no column"):
        projection(StructType([]))


def test_a_nullable_schema_is_a_projection() -> None:
    """In its own order."""
    fields = [
        StructField("value", BinaryType()),
        StructField("key", BinaryType()),
        StructField("headers", ArrayType(StructType([*HEADER[:1], StructField("value", BinaryType())]))),
    ]
    assert projection(StructType(fields)) == ("value", "key", "headers")
