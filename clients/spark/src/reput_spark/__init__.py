# SPDX-License-Identifier: Apache-2.0
"""Spark data source and sink of Reput: `format("reput")`.

Where this package is installed for Spark's own Python interpreter, the format needs no registration. Otherwise (for
example with `--py-files`) call `register(spark)` once per session. Options and columns: docs/spark-reference.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput_spark.errors import ReputSparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ReputSparkError", "lag", "read_frame", "register"]


def lag(progress: object) -> int:
    """Return the entries that a streaming query has not read yet, by its `lastProgress`, of its sources in Python."""
    from reput_spark.read.stream import lag as entries_behind

    return entries_behind(progress)


def read_frame(spark: SparkSession, schema: str | None = None, **options: str) -> DataFrame:
    """Return a batch read for Spark 3.3 to 3.5, which have no `format("reput")`: see `reput_spark.read.frames`."""
    from reput_spark.read.frames import read_frame as read_through_arrow

    return read_through_arrow(spark, schema, **options)


def register(spark: SparkSession) -> None:
    """Make `format("reput")` known to this session. Harmless when it is known already."""
    from reput_spark.source import ReputDataSource

    spark.dataSource.register(ReputDataSource)
