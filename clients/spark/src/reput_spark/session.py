# SPDX-License-Identifier: Apache-2.0
"""The functions of the package: registration with a check of Spark's Python, narrow reads, counts, writes.

This module is imported where it is used, because it imports the client.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from reput_spark.interpreter import check_python
from reput_spark.read.describe import described
from reput_spark.read.frames import read_frame
from reput_spark.read.narrow import Comparison, has_positions, narrowed, offset_range
from reput_spark.read.options import ALIASES, EARLIEST, LATEST, NAMES, default_ddl, parse
from reput_spark.read.predicates import comparisons
from reput_spark.read.schema import SPARK_TYPES
from reput_spark.source import ReputDataSource
from reput_spark.values import canonical

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from reput_spark.read.options import ReadOptions

QUEUE_COUNT_MAX = 10_000
"""Most queues of a read that offsets in a condition narrow."""
_known: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Registered formats by session: Spark logs a warning when a format is registered again."""


def register(spark: SparkSession) -> None:
    """See reput_spark.register. Raises WrongPython."""
    check_python(spark)
    _make_known(spark, ReputDataSource)


def _make_known(spark: SparkSession, source: type[ReputDataSource]) -> None:
    names = _known.setdefault(spark, set())
    if source.name() not in names:
        spark.dataSource.register(source)
        names.add(source.name())


def load(
    spark: SparkSession, where: str | Column | None, columns: str | list[str] | None, options: dict[str, Any]
) -> DataFrame:
    """See reput_spark.load."""
    given = canonical(texts(options), NAMES, ALIASES)
    if columns is not None:
        given["columns"] = columns if isinstance(columns, str) else ",".join(columns)
    wanted = parse(given).columns
    if where is not None and wanted:
        given["columns"] = ",".join(dict.fromkeys((*wanted, *named(where))))
    chosen = parse(given)
    if where is None:
        return _load(spark, chosen, given)
    found = comparisons(spark, default_ddl(chosen), where)
    narrow = narrowed(given, found)
    frame = _load(spark, chosen, given).where("false") if narrow is None else _narrow_frame(spark, narrow, found)
    frame = frame.where(where)
    return frame.select(*wanted) if wanted else frame


def count(spark: SparkSession, where: str | Column | None, options: dict[str, Any]) -> int:
    """See reput_spark.count."""
    chosen = parse(texts(options))
    narrowing = (chosen.keys, chosen.tag_expression, chosen.where, chosen.start_time_ms, chosen.end_time_ms)
    is_whole = narrowing == ((), "", "", None, None)
    if where is None and is_whole:
        from reput_spark.read.shards import plan

        return sum(planned.partition.row_count for planned in plan(chosen))
    return load(spark, where, "offset", options).count()


def append(frame: DataFrame, options: dict[str, Any]) -> None:
    """See reput_spark.append."""
    register(frame.sparkSession)
    frame.write.format(ReputDataSource.name()).options(**texts(options)).mode("append").save()


def texts(options: dict[str, Any]) -> dict[str, str]:
    """Return options in Spark's form: dots for underscores in names, JSON for values that are not text."""
    return {
        name.replace("_", "."): value if isinstance(value, str) else json.dumps(value)
        for name, value in options.items()
    }


def named(where: str | Column) -> list[str]:
    """Return the columns that a condition may use."""
    text = str(where).lower()
    return [name for name in SPARK_TYPES if re.search(rf"(?<!\w){name.lower()}(?!\w)", text)]


def _load(spark: SparkSession, chosen: ReadOptions, given: dict[str, str]) -> DataFrame:
    """Return a read whose name describes it: Spark shows only the name of a source in plans."""
    if not hasattr(spark, "dataSource"):  # Spark 3
        return read_frame(spark, chosen)
    check_python(spark)
    name = described(chosen)
    _make_known(spark, type("ReputDataSource", (ReputDataSource,), {"name": classmethod(lambda _: name)}))
    return spark.read.format(name).options(**given).load()


def _narrow_frame(spark: SparkSession, narrow: dict[str, str], found: list[Comparison]) -> DataFrame:
    chosen = parse(narrow)
    first, end = offset_range(found)
    if (first, end) != offset_range(()) and not has_positions(narrow):
        narrow |= offsets_between(chosen, first, end)
    return _load(spark, parse(narrow), narrow)


def offsets_between(chosen: ReadOptions, first: int, end: int) -> dict[str, str]:
    """Return the options that cut each current queue to a range of offsets. Raises CallFailed."""
    from reput_spark.read import positions, shards

    kept = shards.bounds(chosen)
    if not 1 <= len(kept) <= QUEUE_COUNT_MAX:
        return {}
    # An offset at or outside an edge of a queue is given as this edge, which may have moved when the query runs.
    starts = {queue: EARLIEST if first <= low else min(first, high) for queue, (low, high) in kept.items()}
    ends = {queue: LATEST if end > high else EARLIEST if end <= low else end for queue, (low, high) in kept.items()}
    return {
        "startingOffsets": json.dumps(positions.to_json(starts)),
        "endingOffsets": json.dumps(positions.to_json(ends)),
    }
