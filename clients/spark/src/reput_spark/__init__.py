# SPDX-License-Identifier: Apache-2.0
"""Spark data source of Reput: `spark.read.format("reput")`.

Where this package is installed for Spark's own Python interpreter, the format needs no registration. Otherwise (for
example with `--py-files`) call `register(spark)` once per session. Options and columns: docs/spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput_spark.errors import ReputSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ReputSparkError", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("reput")` known to this session; harmless when it is known already."""
    from reput_spark.source import ReputDataSource

    spark.dataSource.register(ReputDataSource)
