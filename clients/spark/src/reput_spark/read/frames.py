# SPDX-License-Identifier: Apache-2.0
"""Batch reads without the Data Source API, for clusters of Spark 3.3 to 3.5: tasks that read through mapInArrow.

The options, columns, plan and reader are the same as for `format("reput")`. Each partition of the plan has a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reput_spark.read.options import default_ddl
from reput_spark.read.schema import projection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from reput_spark.read.options import ReadOptions


def read_frame(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """Return a DataFrame of the messages that the options select. It is planned now. Raises DataLoss, CallFailed."""
    from reput_spark.read.shards import plan

    ddl = default_ddl(options)
    columns = projection(spark.createDataFrame([], ddl).schema)
    rows = [(planned.pack(),) for planned in plan(options)]
    tasks = spark.sparkContext.parallelize(rows, max(1, len(rows)))

    def read_all(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        from reput_spark.read.scan import read
        from reput_spark.read.shards import unpack

        for batch in batches:
            for packed in batch.column(0).to_pylist():
                planned = unpack(options, packed)
                yield from read(planned.options, columns, planned.partition)

    return spark.createDataFrame(tasks, "partition binary").mapInArrow(read_all, ddl)
