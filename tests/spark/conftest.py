# SPDX-License-Identifier: Apache-2.0
"""The part that tests with a real store share with the connector's tests: a single Spark for a whole process."""

from clients.spark.tests.conftest import spark_process

__all__ = ["spark_process"]
