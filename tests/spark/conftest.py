# SPDX-License-Identifier: Apache-2.0
"""What tests with a real store share with the connector's own: one Spark for all of a process."""

from clients.spark.tests.conftest import spark_process

__all__ = ["spark_process"]
