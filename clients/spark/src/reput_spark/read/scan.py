# SPDX-License-Identifier: Apache-2.0
"""Reading of a partition with the client's reader, which resumes broken streams. Runs on executors.

A task that fails as a whole is not handled here; Spark runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reput_client.frames.scan import Scan, read_partition

from reput_spark import calls
from reput_spark.read.plan import scan_filter

if TYPE_CHECKING:
    import pyarrow as pa
    from reput.indexer.v1.scan_service_pb2 import ScanPartition

    from reput_spark.read.options import ReadOptions


def read(options: ReadOptions, columns: tuple[str, ...], partition: ScanPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition. Raises CallFailed and BadAnswer."""
    scan = Scan(
        scan_filter(options),
        columns,
        has_binary_key=options.has_binary_key,
        frame_size_bytes=options.frame_size_bytes,
        compression=options.compression,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    with calls.told():
        yield from read_partition(calls.servers(options), scan, partition)
