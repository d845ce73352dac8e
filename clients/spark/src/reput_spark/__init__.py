# SPDX-License-Identifier: Apache-2.0
"""Spark data source and sink of Reput: `format("reput")`, and functions for frequent uses.

Where this package is installed for Spark's own Python interpreter, the format needs no registration. Otherwise (for
example with `--py-files`) call `register(spark)` in each session. Options and columns: docs/spark-reference.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reput_spark.errors import ReputSparkError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["ReputSparkError", "append", "count", "lag", "load", "register"]


def count(spark: SparkSession, *, where: str | Column | None = None, **options: Any) -> int:
    """Count messages without moving bodies: from the plan, or with a filter from their queue offsets.

    Takes the arguments of `load` except `columns`, and raises the same errors.
    """
    from reput_spark import session

    return session.count(spark, where, options)


def lag(progress: object) -> int:
    """Return the number of entries that a streaming query has not read yet, from its `lastProgress`.

    Only sources in Python are counted.
    """
    from reput_spark.read.stream import lag as entries_behind

    return entries_behind(progress)


def load(
    spark: SparkSession,
    *,
    where: str | Column | None = None,
    columns: str | list[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Return a batch read that takes only the rows and columns from the store that a condition and columns need.

    The options are the options of `format("reput")`, with underscores in place of dots; values may be numbers, lists
    and dictionaries. The parts of `where` about timestamp, key, tag, topic, partition and offset become options, and
    the condition itself stays in the query. Spark's plans describe the read. With Spark 3.3 to 3.5, which have no
    `format("reput")`, the read uses mapInArrow and is planned at once.
    Raises BadOption, WrongPython and AnalysisException; CallFailed for a condition on offsets.
    """
    from reput_spark import session

    return session.load(spark, where, columns, options)


def register(spark: SparkSession) -> None:
    """Register `format("reput")` in this session. No effect if it is registered already.

    Raises WrongPython if the interpreter that Spark runs on this machine lacks a package of the data source.
    """
    from reput_spark import session

    session.register(spark)


def append(frame: DataFrame, **options: Any) -> None:
    """Append a DataFrame, as `frame.write.format("reput").options(...).mode("append").save()` does.

    The options are the options of the sink, in the form that `load` takes: `store="localhost:8081", topic="orders"`.
    """
    from reput_spark import session

    session.append(frame, options)
