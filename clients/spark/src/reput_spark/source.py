# SPDX-License-Identifier: Apache-2.0
"""The data source itself: the class that Spark calls.

Spark pickles the source, its reader and its partitions to its own Python workers, so they hold plain values. Modules
that need grpc, protobuf or pyarrow are imported where they are used.
The source takes no filter from Spark: Spark's push-down for Python sources gives wrong results when a DataFrame is used
twice (docs/spark.md). So keys, times, tags and queues are options; `reput_spark.load` finds them in a condition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from reput_spark.errors import BadOption
from reput_spark.read.options import default_ddl, parse
from reput_spark.read.reader import ReputReader
from reput_spark.read.schema import projection, wants_binary_key
from reput_spark.read.stream import ReputStreamReader
from reput_spark.write.columns import check_columns
from reput_spark.write.options import parse_write
from reput_spark.write.sink import ReputBatchSink, ReputStreamSink

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from reput_spark.read.options import ReadOptions


class ReputDataSource(DataSource):
    """`format("reput")`: topics of a Reput store as rows."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "reput"

    def schema(self) -> str:
        """Return all default columns. Raises BadOption for options that are invalid for batch reads and for streams."""
        try:
            options = parse(self.options)
        except BadOption as error:
            try:
                options = parse(self.options, is_stream=True)
            except BadOption:
                raise error from None
        return default_ddl(options)

    def reader(self, schema: StructType) -> ReputReader:
        """Return a reader of the columns of `schema`. Raises BadOption and BadSchema."""
        return ReputReader(*_fitted(parse(self.options), schema))

    def streamReader(self, schema: StructType) -> ReputStreamReader:  # noqa: N802
        """Return a reader of the columns of `schema` that follows the queues. Raises BadOption and BadSchema."""
        return ReputStreamReader(*_fitted(parse(self.options, is_stream=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> ReputBatchSink:
        """Return a sink for a DataFrame of this schema. Raises BadOption, BadSchema and CallFailed."""
        options = parse_write(self.options)
        check_columns(schema, options)
        sink = ReputBatchSink(options, overwrite=overwrite)
        sink.check_reach()
        return sink

    def streamWriter(self, schema: StructType, overwrite: bool) -> ReputStreamSink:  # noqa: N802
        """Return a sink for a streaming DataFrame of this schema. Raises BadOption and BadSchema."""
        if overwrite:
            raise BadOption("outputMode", "a log only grows; use outputMode('append')")
        options = parse_write(self.options)
        if options.writer_id:
            raise BadOption("writerId", "is for batch writes; a stream is named by its checkpoint")
        check_columns(schema, options)
        return ReputStreamSink(options)


def _fitted(options: ReadOptions, schema: StructType) -> tuple[ReadOptions, tuple[str, ...]]:
    """Return the options and the columns of a read, adapted to the schema that Spark plans with."""
    columns = projection(schema)
    if options.columns and columns != options.columns:
        raise BadOption("columns", f"names other columns than the schema, {', '.join(columns)}; leave one of them out")
    return replace(options, has_binary_key=wants_binary_key(schema)), columns
