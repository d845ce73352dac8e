# SPDX-License-Identifier: Apache-2.0
"""Reading of planned partitions: the reader of a batch, and the rows of a partition for batches and streams."""

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
        from reput_spark.read.shards import plan

        return [InputPartition(planned.pack()) for planned in plan(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition. If there are no partitions, Spark makes an empty partition without a value."""
        return read_partition(self.options, self.columns, partition)


def read_partition(
    options: ReadOptions, columns: tuple[str, ...], partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a planned partition, no rows for Spark's empty partition. Raises CallFailed, BadAnswer."""
    if partition is None or partition.value is None:  # the empty partition of Spark 4.1 is None
        return iter(())
    from reput_spark.read.scan import read
    from reput_spark.read.shards import unpack

    planned = unpack(options, partition.value)
    return read(planned.options, columns, planned.partition)
