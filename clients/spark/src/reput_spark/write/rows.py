# SPDX-License-Identifier: Apache-2.0
"""Rows as messages, with the client's encoder and the names of the columns of this sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reput_client.frames import rows

from reput_spark.errors import BadRow

if TYPE_CHECKING:
    import pyarrow as pa

    from reput_spark.write.options import WriteOptions

COLUMNS = rows.Columns(
    body="value",
    topic="topic",
    queue_id="partition",
    key="key",
    tag="tag",
    properties="properties",
    headers="headers",
    born_time="born_timestamp",
    flag="flag",
    splits_key=True,
)


class Encoder:
    """Encodes rows as chunks. Each task has its own encoder."""

    def __init__(self, options: WriteOptions) -> None:
        self._rows = rows.Encoder(COLUMNS, topic=options.topic, has_sharding_key=options.has_sharding_key)

    def chunks(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield a chunk for each row. Raises BadRow."""
        try:
            yield from self._rows.chunks(batch)
        except rows.BadRowError as error:
            raise BadRow(error.column, error.problem) from None
