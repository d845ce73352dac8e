# SPDX-License-Identifier: Apache-2.0
"""Predicates: finds the comparisons of single columns in a condition, after Spark's own optimizer has folded constants.

It asks the JVM through the classic session. Spark Connect does not give access to its plans: there no comparison is
found, and reads are correct but not narrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reput_spark.read.narrow import Comparison

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

RELATIONS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
"""Relations by the names of the classes of org.apache.spark.sql.sources."""
LOWER = (">", ">=")
STRATEGY = "org.apache.spark.sql.execution.datasources.DataSourceStrategy$"
"""The class that makes filters for Spark's own sources."""


def comparisons(spark: SparkSession, ddl: str, where: str | Column) -> list[Comparison]:
    """Return comparisons that all rows fulfil that pass a condition on a table of this schema. Some may not be found.

    Raises AnalysisException for a condition that is invalid for such a table.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None:
        return []
    # No job runs for it: the rows of an RDD are not computed before they are requested.
    query = spark.createDataFrame(context.emptyRDD(), ddl).where(where)._jdf.queryExecution()  # noqa: SLF001
    jvm = context._jvm  # noqa: SLF001
    strategy = getattr(getattr(jvm, STRATEGY), "MODULE$")
    found = []
    for condition in _conditions(query.optimizedPlan()):
        translated = strategy.translateFilter(condition, True)
        comparison = _comparison(translated.get()) if translated.isDefined() else None
        found += [comparison] if comparison is not None else []
    if query.analyzed().containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()):
        # The query runs later, and its current time is later, too: only a lower bound stays valid.
        return [one for one in found if one.column == "timestamp" and one.relation in LOWER]
    return found


def _conditions(plan: Any) -> Iterator[Any]:
    """Yield the conditions of the filters of a plan without branches. All of them must hold."""
    while True:
        if plan.getClass().getSimpleName() == "Filter":
            yield from _conjuncts(plan.condition())
        if plan.children().size() != 1:
            return
        plan = plan.children().head()


def _conjuncts(expression: Any) -> Iterator[Any]:
    if expression.getClass().getSimpleName() != "And":
        yield expression
        return
    yield from _conjuncts(expression.left())
    yield from _conjuncts(expression.right())


def _comparison(predicate: Any) -> Comparison | None:
    """Return a predicate of Spark as a comparison, None for another kind of predicate."""
    kind = predicate.getClass().getSimpleName()
    if kind == "In":
        values = [_plain(value) for value in predicate.values() if value is not None]
    elif kind in RELATIONS:
        values = [_plain(predicate.value())]
    else:
        return None
    is_known = values and all(isinstance(value, str | int | bytes) for value in values)
    return Comparison(predicate.attribute(), RELATIONS.get(kind, "="), tuple(values)) if is_known else None


def _plain(value: Any) -> Any:
    """Return a value in Python's form: times as microseconds since the epoch. Other JVM values stay unchanged."""
    if isinstance(value, bytearray):
        return bytes(value)
    if not hasattr(value, "getClass"):
        return value
    match value.getClass().getName():
        case "java.sql.Timestamp":
            return value.getTime() // 1000 * 1_000_000 + value.getNanos() // 1000
        case "java.time.Instant":
            return value.getEpochSecond() * 1_000_000 + value.getNano() // 1000
    return value
