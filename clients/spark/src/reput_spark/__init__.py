# SPDX-License-Identifier: Apache-2.0
"""Spark data source and sink of Reput: `format("reput")`, and shorter ways to it.

Where this package is installed for Spark's own Python interpreter, the format needs no registration. Otherwise (for
example with `--py-files`) call `register(spark)` once per session. Options and columns: docs/spark-reference.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reput_spark.errors import ReputSparkError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["ReputSparkError", "append", "count", "lag", "load", "register"]


def count(spark: SparkSession, *, where: str | Column | None = None, **options: Any) -> int:
    """Count messages without moving bodies: by what the plan says, or if only some pass, by their queue offsets.

    Takes what `load` takes, and raises what it raises.
    """
    from reput_spark import session

    return session.count(spark, where, options)


def lag(progress: object) -> int:
    """Return the entries that a streaming query has not read yet, by its `lastProgress`, of its sources in Python."""
    from reput_spark.read.stream import lag as entries_behind

    return entries_behind(progress)


def load(
    spark: SparkSession,
    *,
    where: str | Column | None = None,
    columns: str | list[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Return a batch read that takes only what a condition and columns need from the store.

    The options are those of `format("reput")`, with underscores for dots; values may be numbers, lists, dictionaries.
    What `where` says of timestamp, key, tag, topic, partition and offset becomes options, and the condition itself
    stays in the query. Spark's plans show what is read. With Spark 3.3 to 3.5, which have no `format("reput")`, the
    read goes through mapInArrow and is planned now.
    Raises BadOption, WrongPython and AnalysisException; CallFailed for a condition on offsets.
    """
    from reput_spark import session

    return session.load(spark, where, columns, options)


def register(spark: SparkSession) -> None:
    """Make `format("reput")` known to this session. Harmless when it is known already.

    Raises WrongPython if the interpreter that Spark runs on this machine lacks what the data source needs.
    """
    from reput_spark import session

    session.register(spark)


def append(frame: DataFrame, **options: Any) -> None:
    """Append a DataFrame, as `frame.write.format("reput").options(...).mode("append").save()` does.

    The options are those of the sink, as `load` takes them: `commitlog_endpoint="127.0.0.1:7101", topic="orders"`.
    """
    from reput_spark import session

    session.append(frame, options)
