# SPDX-License-Identifier: Apache-2.0
"""Reading what a plan cut: the reader of a batch, and the rows of one partition for it and for streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from reput_spark.read.options import ReadOptions


class ReputReader(DataSourceReader):
    """Reads the partitions that the Indexer cuts."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options, self.columns = options, columns

    def partitions(self) -> list[InputPartition]:
        """Plan. Runs once per DataFrame, at its first action: later messages need a new `load()`."""
        from reput_spark.read.plan import plan

        return [InputPartition(partition.SerializeToString()) for partition in plan(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition. Spark makes up a partition without a value when there are none."""
        return read_partition(self.options, self.columns, partition)


def read_partition(
    options: ReadOptions, columns: tuple[str, ...], partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a partition of a plan, none for one that Spark made up. Raises CallFailed, BadAnswer."""
    if partition is None or partition.value is None:  # the first is how Spark 4.1 makes one up
        return iter(())
    from reput.indexer.v1.scan_service_pb2 import ScanPartition

    from reput_spark.read.scan import read

    return read(options, columns, ScanPartition.FromString(partition.value))
