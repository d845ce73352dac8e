# SPDX-License-Identifier: Apache-2.0
"""What Spark looks for to know `format("reput")` by itself: a top-level `pyspark_*` package with `DefaultSource`.

A package of this kind that fails to import hides all others of its kind from Spark, so nothing heavy is imported here:
`reput_spark.source` needs only PySpark and the standard library until it reads.
"""

from reput_spark.source import ReputDataSource as DefaultSource

__all__ = ["DefaultSource"]
