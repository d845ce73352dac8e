# SPDX-License-Identifier: Apache-2.0
"""The package by which Spark finds `format("reput")` without registration: `pyspark_*` with a `DefaultSource`.

A package of this kind that fails to import hides all others of its kind from Spark, so it imports only light modules:
`reput_spark.source` needs only PySpark and the standard library until it reads.
"""

from reput_spark.source import ReputDataSource as DefaultSource

__all__ = ["DefaultSource"]
