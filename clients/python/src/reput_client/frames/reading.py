# SPDX-License-Identifier: Apache-2.0
"""Frames: a planned read of topics, whose rows come as Arrow record batches from several threads."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from reput.indexer.v1.scan_service_pb2 import PlanScanRequest, ScanPartition

from reput_client.core.errors import OutOfRangeError
from reput_client.core.options import Options
from reput_client.core.retry import RetryPolicy
from reput_client.core.types import TimeLike
from reput_client.frames import asked
from reput_client.frames.calls import ONCE, CallEnded, Servers
from reput_client.frames.decode import Decoder, Decoding
from reput_client.frames.parallel import Parallel
from reput_client.frames.plan import in_order, plan, queues_of
from reput_client.frames.progress import Line, Progress
from reput_client.frames.scan import Scan, read_partition
from reput_client.sync.channels import Channels
from reput_client.sync.client import Client
from reput_client.sync.closing import Closing

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

PARTITION_SIZE_BYTES = 8 << 20
"""Partitions are small, so that whole partitions wait for their turn while others are read."""
PARTITION_SIZE_BYTES_MAX = 1 << 40


class Connections:
    """The channels of a single read. Closing them ends its calls, and no other."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.RLock()  # the collector of garbage may close it in the thread that has the lock
        self._channels: dict[str, Channels] = {}
        self._is_closed = False

    def to(self, endpoint: str) -> Channels:
        """Return the channels to an Indexer. Raises ValueError after `close`."""
        with self._lock:
            if self._is_closed:
                raise ValueError("the read was closed")
            if endpoint not in self._channels:
                self._channels[endpoint] = Channels(replace(self._options, indexer=endpoint), ONCE)
            return self._channels[endpoint]

    def close(self) -> None:
        """End all calls and connections. May be repeated."""
        with self._lock:
            self._is_closed = True
            channels = list(self._channels.values())
        for one in channels:
            one.close()

    def servers(self, retry: RetryPolicy, wait: Callable[[float], None] = time.sleep) -> Servers:
        """Return the Indexers of the options, called over these channels."""
        return Servers(tuple(self._options.targets("indexer")), retry, self._options.timeout_s, self.to, wait)


class Frames(Closing):
    """A read of topics: an iterable of Arrow record batches. Made by `read`, which has planned it.

    Its rows are those that were there when it was planned. Each iteration reads them anew, with threads and connections
    of its own, and gives the same rows in the same order, as long as the store keeps them. An iteration that ends
    early, by `break` or an exception, ends its threads and calls. Rows are ordered by topic, queue id and queue offset;
    rows of keys come as the Indexer finds them, key by key. Libraries that take Arrow's stream interface, as DuckDB and
    polars do, take a Frames as it is.
    """

    def __init__(
        self,
        options: Options,
        retry: RetryPolicy,
        scan: Scan,
        partitions: Sequence[ScanPartition],
        *,
        thread_count: int,
        window_bytes: int,
        decoding: Decoding | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._options, self._retry, self._scan, self._partitions = options, retry, scan, partitions
        self._thread_count, self._window_bytes = thread_count, window_bytes
        self._decoding, self._progress = decoding, progress
        self._running: list[Parallel[ScanPartition]] = []
        self.schema: pa.Schema = decoding.schema(scan.schema) if decoding else scan.schema
        """The columns of the batches."""
        has_keys = bool(scan.filter.keys)
        self.planned_row_count = None if has_keys else sum(partition.row_count for partition in partitions)
        """Number of entries before the filter by tags and properties; None for a read by keys."""
        self.planned_partition_count = len(partitions)

    def __repr__(self) -> str:
        return f"Frames({self.schema.names}, planned_row_count={self.planned_row_count})"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches. Raises ReputError, after the batches before the failure."""
        connections = Connections(self._options)
        run: Parallel[ScanPartition] = Parallel(
            self._partitions,
            lambda partition: self._read(connections.servers(self._retry, run.wait), partition),
            thread_count=self._thread_count,
            window_bytes=self._window_bytes,
            cut_off=connections.close,
        )
        self._running.append(run)
        began_s, row_count = time.monotonic(), 0
        try:
            for number, batch in run.batches():
                row_count += batch.num_rows
                self._tell(row_count, number, began_s)
                yield batch
            self._tell(row_count, len(self._partitions), began_s)
        except CallEnded as ended:
            raise ended.error from None
        finally:
            run.close()
            self._running.remove(run)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader that reads them once, while it is read."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a table."""
        return pa.Table.from_batches(list(self), self.schema)

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as a polars.DataFrame. Needs polars."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_pandas(self, **options: Any) -> "pd.DataFrame":
        """Return all rows as a pandas.DataFrame. The options are those of pyarrow.Table.to_pandas. Needs pandas."""
        return self.to_arrow().to_pandas(**options)

    def close(self) -> None:
        """End the iterations that are running. May be repeated."""
        for run in list(self._running):
            run.close()

    def _read(self, servers: Servers, partition: ScanPartition) -> Iterator[pa.RecordBatch]:
        batches = read_partition(servers, self._scan, partition)
        if self._decoding is None:
            return batches
        return itertools.chain.from_iterable(map(self._decoding.batches, batches))

    def _tell(self, row_count: int, partition_count: int, began_s: float) -> None:
        if self._progress is not None:
            counts = (row_count, partition_count, self.planned_partition_count, self.planned_row_count)
            self._progress(Progress(*counts, time.monotonic() - began_s))


def read(
    source: Client | str,
    topics: str | Iterable[str],
    *,
    key: str | None = None,
    keys: Iterable[str] = (),
    start: TimeLike | None = None,
    end: TimeLike | None = None,
    offsets: asked.Offsets | None = None,
    queue_ids: Iterable[int] = (),
    tags: str = "*",
    where: str = "",
    columns: Iterable[str] | None = None,
    decode: Decoder | None = None,
    progress: bool | Callable[[Progress], None] = False,
    thread_count: int = 4,
    window_bytes: int = 32 << 20,
    frame_size_bytes: int = 1 << 20,
    compression: str = "",
    fail_on_data_loss: bool = True,
) -> Frames:
    """Plan a read of a topic or several topics, and return it. Nothing is read before its batches are asked for.

    `source` is a client, or the address of an Indexer, for which the environment has the credentials as for `connect`.
    `key` or `keys` select messages by key, `start` (inclusive) and `end` (exclusive) by store time, `tags` by tag
    (`A||B`), and `where` by properties (docs/filters.md). `offsets` cuts queues: {queue id: (first, end)}
    or {(topic, queue id): (first, end)}, with None for an open side; other queues are read whole. `queue_ids` reads
    only these queues. `decode` turns bodies into columns. `progress` True shows a line on stderr; a function is called
    with a Progress after each batch. Batches that wait for the consumer have at most `window_bytes` bytes.
    `compression` of what is sent is "", "lz4" or "zstd". With `fail_on_data_loss` False, entries that the store has
    deleted are left out in place of an error.
    Raises ReputError, and ValueError or TypeError for an argument that makes no sense.
    """
    asked.check_form(
        thread_count=thread_count, window_bytes=window_bytes, frame_size_bytes=frame_size_bytes, compression=compression
    )
    names, wanted = asked.names_of(topics), asked.columns_of(columns)
    decoding = None if decode is None else Decoding(decode, None if columns is None else wanted)
    scan = Scan(
        asked.filter_of(key, keys, tags, where, start, end),
        wanted if decoding is None else decoding.needed,
        frame_size_bytes=frame_size_bytes,
        compression=compression,
        fail_on_data_loss=fail_on_data_loss,
    )
    request = PlanScanRequest(
        topics=names,
        queue_ids=sorted(set(queue_ids)),
        filter=scan.filter,
        ranges=asked.ranges_of(names, offsets or {}),
        partition_size_bytes_max=PARTITION_SIZE_BYTES,
    )
    options, retry = reached_by(source)
    return Frames(
        options,
        retry,
        scan,
        _planned(options, retry, request, fail_on_data_loss=fail_on_data_loss),
        thread_count=thread_count,
        window_bytes=window_bytes,
        decoding=decoding,
        progress=Line(",".join(names)) if progress is True else progress or None,
    )


def reached_by(source: Client | str) -> tuple[Options, RetryPolicy]:
    """Return how a store is reached: as a client does it, or at the address of the store or of its Indexer."""
    if isinstance(source, str):
        return Options.load({"store": source}), RetryPolicy()
    channels = source._channels  # noqa: SLF001 - a read has connections of its own
    return channels.options, channels.retry


def _planned(
    options: Options, retry: RetryPolicy, request: PlanScanRequest, *, fail_on_data_loss: bool
) -> list[ScanPartition]:
    """Return the partitions in the order of their rows. Raises ReputError."""
    connections = Connections(options)
    servers = connections.servers(retry)
    try:
        _fit(servers, request, fail_on_data_loss=fail_on_data_loss)
        while True:
            try:
                return in_order(plan(servers, request), request.topics)
            except CallEnded as ended:
                if "partition_size_bytes_max" not in ended.error.fields:
                    raise
                if request.partition_size_bytes_max >= PARTITION_SIZE_BYTES_MAX:
                    raise
                request.partition_size_bytes_max *= 4  # a plan has a limited number of partitions
    except CallEnded as ended:
        raise ended.error from None
    finally:
        connections.close()


def _fit(servers: Servers, request: PlanScanRequest, *, fail_on_data_loss: bool) -> None:
    """Check the first entries of ranges, which the Indexer would leave out without a word.

    Raises OutOfRangeError for an entry that is not stored any more; without `fail_on_data_loss` the range is cut.
    """
    kept = {
        (queue.topic, queue.queue_id): queue
        for topic in {cut.topic for cut in request.ranges}
        for queue in queues_of(servers, topic)
    }
    for cut in request.ranges:
        queue = kept.get((cut.topic, cut.queue_id))
        first = queue.min_queue_offset if queue else 0
        if fail_on_data_loss and 0 < cut.start_queue_offset < first:
            raise OutOfRangeError(
                f"offsets of {cut.topic} queue {cut.queue_id} begin at {cut.start_queue_offset}, but the first stored "
                f"entry is {first}; None reads from there",
                metadata={"min": str(first)},
            )
        if not fail_on_data_loss and queue is not None:
            cut.start_queue_offset = max(first, min(cut.start_queue_offset, queue.max_queue_offset))
            cut.end_queue_offset = max(cut.start_queue_offset, min(cut.end_queue_offset, queue.max_queue_offset))
