# SPDX-License-Identifier: Apache-2.0
"""An Indexer in memory: the scan service over lists of rows, which can break streams, and a Spark for all tests."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.rpc import error_details_pb2, status_pb2
from reput.indexer.v1 import index_service_pb2, queue_service_pb2, scan_service_pb2

DEFAULT_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "tag", "properties", "born_timestamp"]
TYPES = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "tag": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
    "physical_offset": pa.int64(),
}


@dataclass
class FakeIndexer:
    """Rows by (topic, queue), served as the proto describes. Records its requests."""

    queues: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[Any] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    break_after: list[int] = field(default_factory=list)
    """Numbers of answers after which the next scans break, a number per scan; later scans do not break."""
    silent_after: list[int] = field(default_factory=list)
    """Numbers of answers after which the next scans are silent until they are cancelled, a number per scan."""
    break_code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    break_reason: str = ""
    break_metadata: dict[str, str] = field(default_factory=dict)
    rows_per_frame: int = 3
    first_kept: dict[str, int] = field(default_factory=dict)
    endpoint: str = ""
    made: set[str] = field(default_factory=set)
    """Topics without messages, besides the topics of the queues."""
    is_log_away: bool = False
    """Whether its status says that it does not reach its log."""

    def fill(self, topic: str, queue_count: int, row_count: int) -> None:
        """Make rows whose values contain their place."""
        for queue_id in range(queue_count):
            self.queues[topic, queue_id] = [
                {
                    "key": f"k{offset % 5}",
                    "value": json.dumps([topic, queue_id, offset]).encode(),
                    "topic": topic,
                    "partition": queue_id,
                    "offset": offset,
                    "timestamp": (1_700_000_000_000 + offset) * 1000,
                    "tag": "even" if offset % 2 == 0 else None,
                    "properties": [("KEYS", f"k{offset % 5}")],
                    "born_timestamp": 1_600_000_000_000_000,
                    "physical_offset": offset * 100,
                }
                for offset in range(row_count)
            ]

    def plan(self, request: Any, context: Any) -> Any:
        """Return a partition per queue, or a partition of all keys per topic."""
        self.note(request, context)
        cuts = {(r.topic, r.queue_id): (r.start_queue_offset, r.end_queue_offset) for r in request.ranges}
        response = scan_service_pb2.PlanScanResponse()
        for topic in request.topics:
            if topic not in self.made and all(topic != name for name, _ in self.queues):
                self.break_off(context, grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")
            if request.filter.keys:
                response.partitions.add(key_topic=topic, keys=request.filter.keys)
                continue
            for (name, queue_id), rows in self.queues.items():
                if name == topic and (not request.queue_ids or queue_id in request.queue_ids):
                    start, end = cuts.get((name, queue_id), (0, len(rows)))
                    partition = response.partitions.add(row_count=end - start, size_bytes=100 * (end - start))
                    partition.ranges.add(topic=topic, queue_id=queue_id, start_queue_offset=start, end_queue_offset=end)
        return response

    def scan(self, request: Any, context: Any) -> Iterator[Any]:
        """Frames of a partition."""
        self.note(request, context)
        break_after = self.break_after.pop(0) if self.break_after else None
        silent_after = self.silent_after.pop(0) if self.silent_after else None
        answers = self.key_answers(request) if request.partition.keys else self.range_answers(request)
        for count, answer in enumerate(answers):
            if count == break_after:
                self.break_off(context)
            if count == silent_after:
                wait_cancelled(context)
            yield answer
        if break_after is not None:
            self.break_off(context)

    def break_off(self, context: Any, code: grpc.StatusCode | None = None, reason: str = "") -> None:
        """Ends a call with an error as Reput's services make it, that of the switch unless it is given."""
        code, reason = code or self.break_code, reason or self.break_reason
        status = status_pb2.Status(code=code.value[0], message="broken on purpose")
        info = error_details_pb2.ErrorInfo(reason=reason, domain="reput", metadata=self.break_metadata)
        status.details.add().Pack(info)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, status.message)

    def range_answers(self, request: Any) -> Iterator[Any]:
        """Frames of ranges, with the range that each covers."""
        for one in request.partition.ranges:
            rows = self.queues[one.topic, one.queue_id]
            for start in range(one.start_queue_offset, one.end_queue_offset, self.rows_per_frame):
                end = min(start + self.rows_per_frame, one.end_queue_offset)
                answer = frame([row for row in rows[start:end] if passes(row, request.filter)], request)
                answer.range.CopyFrom(one)
                answer.range.start_queue_offset, answer.range.end_queue_offset = start, end
                yield answer

    def key_answers(self, request: Any) -> Iterator[Any]:
        """Frames of keys, without a range."""
        for (topic, _), rows in self.queues.items():
            if topic == request.partition.key_topic:
                found = [row for row in rows if row["key"] in request.partition.keys and passes(row, request.filter)]
                for start in range(0, len(found), self.rows_per_frame):
                    yield frame(found[start : start + self.rows_per_frame], request)

    def list_queues(self, request: Any, context: Any) -> Any:
        """Bounds of all queues, two to a page. The first `first_kept` entries of each topic have expired."""
        self.note(request, context)
        found = sorted(queue for queue in self.queues if request.topic in ("", queue[0]))
        start = int(request.page_token or 0)
        response = queue_service_pb2.ListQueuesResponse(
            next_page_token=str(start + 2) if start + 2 < len(found) else ""
        )
        for topic, queue_id in found[start : start + 2]:
            end = len(self.queues[topic, queue_id])
            first = min(self.first_kept.get(topic, 0), end)
            response.queues.add(topic=topic, queue_id=queue_id, min_queue_offset=first, max_queue_offset=end)
        return response

    def offset_by_time(self, request: Any, context: Any) -> Any:
        """The first entry at or after a time."""
        self.note(request, context)
        rows = self.queues[request.topic, request.queue_id]
        time_us = request.time.ToMilliseconds() * 1000
        found = next((row["offset"] for row in rows if row["timestamp"] >= time_us), len(rows))
        return queue_service_pb2.GetOffsetByTimeResponse(queue_offset=found)

    def status(self, _request: Any, _context: Any) -> Any:
        """Return its status."""
        return index_service_pb2.GetStatusResponse(is_log_away=self.is_log_away)

    def note(self, request: Any, context: Any) -> None:
        """Record a request."""
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))

    def scans(self) -> list[Any]:
        """The scans that were asked for."""
        return [request for request in self.requests if isinstance(request, scan_service_pb2.ScanRequest)]


def wait_cancelled(context: Any) -> None:
    """Return when the client has given up a call."""
    is_over = threading.Event()
    if context.add_callback(is_over.set):
        is_over.wait()


def passes(row: dict[str, Any], scan_filter: Any) -> bool:
    """The filter on tags."""
    return scan_filter.tag_expression in ("", "*") or row["tag"] in scan_filter.tag_expression.split("||")


def frame(rows: list[dict[str, Any]], request: Any) -> Any:
    """Rows as an Arrow IPC stream. Columns that ranges leave to the reader are not sent by default."""
    names = list(request.columns) or DEFAULT_COLUMNS
    schema = pa.schema([(name, TYPES[name]) for name in names])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=request.compression or None)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    return scan_service_pb2.ScanResponse(arrow_ipc=sink.getvalue().to_pybytes(), row_count=len(rows))


@pytest.fixture
def indexer() -> Iterator[FakeIndexer]:
    """A serving FakeIndexer with its endpoint."""
    with served() as fake:
        yield fake


@pytest.fixture
def other_indexer() -> Iterator[FakeIndexer]:
    """An Indexer of another replica of the same log."""
    with served() as fake:
        yield fake


@contextlib.contextmanager
def served() -> Iterator[FakeIndexer]:
    """A FakeIndexer behind a server of its own."""
    fake = FakeIndexer()
    server = grpc.server(ThreadPoolExecutor(4))
    scan_types, queue_types = scan_service_pb2, queue_service_pb2

    def unary(behaviour: Any, request_type: Any) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(behaviour, request_type.FromString, lambda m: m.SerializeToString())

    scans = {
        "PlanScan": unary(fake.plan, scan_types.PlanScanRequest),
        "Scan": grpc.unary_stream_rpc_method_handler(
            fake.scan, scan_types.ScanRequest.FromString, lambda m: m.SerializeToString()
        ),
    }
    ranges = {
        "ListQueues": unary(fake.list_queues, queue_types.ListQueuesRequest),
        "GetOffsetByTime": unary(fake.offset_by_time, queue_types.GetOffsetByTimeRequest),
    }
    states = {"GetStatus": unary(fake.status, index_service_pb2.GetStatusRequest)}
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("reput.indexer.v1.IndexService", states),
            grpc.method_handlers_generic_handler("reput.indexer.v1.ScanService", scans),
            grpc.method_handlers_generic_handler("reput.indexer.v1.QueueService", ranges),
        )
    )
    fake.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield fake
    finally:
        server.stop(grace=None).wait()


@pytest.fixture(scope="session")
def spark_process() -> Iterator[Any]:
    """A local Spark with two slots, which all tests of the process share. Modules make sessions of their own in it."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put all tests that need Spark into a single process, and keep the tests of each other file together."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            needs_spark = "spark_process" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if needs_spark else str(item.path)))
