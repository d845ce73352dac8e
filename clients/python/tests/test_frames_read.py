# SPDX-License-Identifier: Apache-2.0
"""Frames against an Indexer in memory: rows and their order, broken streams, hostile answers, an early end."""

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import duckdb
import grpc
import polars as pl
import pyarrow as pa
import pytest
import reput_client
from reput.indexer.v1.scan_service_pb2 import PlanScanResponse, ScanPartition, ScanRange, ScanResponse
from reput_client import frames
from reput_client.core.retry import RetryPolicy
from reput_client.frames.answers import ScanAnswer
from reput_client.frames.columns import batches_of, conform, schema_of
from reput_client.frames.plan import in_order
from reput_client.frames.progress import Line, Progress
from reput_client.frames.scan import RangeReader

from clients.python.tests.support import LIMIT_S
from clients.spark.tests.conftest import FakeIndexer, served

FAST = RetryPolicy(3, 0.001, 0.01)


@pytest.fixture
def indexer() -> Iterator[FakeIndexer]:
    with served() as fake:
        yield fake


@pytest.fixture
def client(indexer: FakeIndexer) -> Iterator[reput_client.Client]:
    with reput_client.connect(indexer=indexer.endpoint, retry=FAST) as client:
        yield client


def places(batches: Any) -> list[tuple[str, int, int]]:
    """The places of rows, from their bodies."""
    return [tuple(json.loads(body)) for batch in batches for body in batch["value"].to_pylist()]


def all_of(topics: list[str], queue_count: int, row_count: int) -> list[tuple[str, int, int]]:
    return [(topic, queue, row) for topic in topics for queue in range(queue_count) for row in range(row_count)]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reput-frames")]


def test_rows_come_in_order_of_topic_queue_and_offset(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """Topics as they were given; each iteration gives the same rows again, also of a plan that is older than a row."""
    indexer.fill("bills", 3, 10)
    indexer.fill("orders", 4, 25)
    with frames.read(client, ["orders", "bills"], frame_size_bytes=100) as read:
        assert read.planned_row_count == 130
        expected = all_of(["orders"], 4, 25) + all_of(["bills"], 3, 10)
        assert places(read) == expected
        indexer.queues["orders", 0].append(dict(indexer.queues["orders", 0][0]))
        assert places(read) == expected
    assert read.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "tag", "properties", "born_timestamp",
    ]  # fmt: skip
    assert threads() == []


def test_an_address_is_enough(indexer: FakeIndexer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has the token, as for connect."""
    indexer.fill("orders", 1, 5)
    monkeypatch.setenv("REPUT_CLIENT_TOKEN", "from-environment")
    assert places(frames.read(indexer.endpoint, "orders")) == all_of(["orders"], 1, 5)
    assert {metadata["authorization"] for metadata in indexer.metadata} == {"Bearer from-environment"}


def test_other_libraries_take_it(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """Arrow, polars, pandas, and DuckDB, which reads by column and stops early."""
    indexer.fill("orders", 2, 50)
    read = frames.read(client, "orders", columns=["partition", "offset", "key"])
    assert read.to_arrow().num_rows == 100
    assert read.to_polars().select(pl.col("key").n_unique()).item() == 5
    assert pl.DataFrame(read).shape == (100, 3)
    assert list(read.to_pandas().columns) == ["partition", "offset", "key"]
    assert read.to_reader().read_all().equals(read.to_arrow())
    assert duckdb.sql('SELECT partition, max("offset") FROM read GROUP BY 1 ORDER BY 1').fetchall() == [
        (0, 49),
        (1, 49),
    ]
    reader = read.to_reader()
    assert duckdb.sql("SELECT key FROM reader LIMIT 1").fetchall() == [("k0",)]
    del reader


def test_nothing_is_a_table_without_rows(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """A topic without messages, and a filter that nothing passes, have the columns of a full one."""
    indexer.made.add("empty")
    indexer.fill("orders", 1, 4)
    for read in (frames.read(client, "empty"), frames.read(client, "orders", tags="none")):
        assert read.to_arrow().shape == (0, 9)
        assert read.to_polars().height == 0


def test_what_the_indexer_is_asked(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """Filters, times, columns and queues reach the plan; keys the scan."""
    indexer.fill("orders", 3, 10)
    read = frames.read(
        client, "orders", tags="even", start=1_700_000_000_003, end=1_700_000_000_900, where="a = 1", queue_ids=[2, 1],
        offsets={1: (2, 8), ("orders", 2): (None, 4)}, columns=["offset", "partition"], compression="lz4",
    )  # fmt: skip
    asked = indexer.requests[-1]
    assert (asked.filter.tag_expression, asked.filter.where, list(asked.queue_ids)) == ("even", "a = 1", [1, 2])
    assert asked.filter.start_time.ToMilliseconds() == 1_700_000_000_003
    assert asked.filter.end_time.ToMilliseconds() == 1_700_000_000_900
    assert [(cut.queue_id, cut.start_queue_offset) for cut in asked.ranges] == [(1, 2), (2, 0)]
    del read
    found = frames.read(client, "orders", keys=["k1", "k3"], columns=["offset"])
    assert found.planned_row_count is None
    assert sorted(found.to_arrow()["offset"].to_pylist()) == sorted([1, 3, 6, 8] * 3)
    assert list(indexer.scans()[-1].partition.keys) == ["k1", "k3"]
    assert list(indexer.scans()[-1].columns) == ["offset", "partition"]


def test_offsets_below_the_first_entry(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """They are an error that names the entry, and are left out if asked for."""
    indexer.fill("orders", 2, 10)
    indexer.first_kept["orders"] = 4
    with pytest.raises(
        reput_client.OutOfRangeError, match="orders queue 1 begin at 2, but the first stored entry is 4"
    ):
        frames.read(client, "orders", offsets={1: (2, None)})
    read = frames.read(client, "orders", offsets={1: (2, 99)}, queue_ids=[1], fail_on_data_loss=False)
    assert read.to_arrow()["offset"].to_pylist() == list(range(4, 10))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topics": ""}, "topics is ''"),
        ({"topics": []}, r"topics is \[\]"),
        ({"columns": ["body"]}, "columns names 'body': there are key, value"),
        ({"columns": []}, "expected at least one column"),
        ({"columns": ["key", "key"]}, "each once"),
        ({"key": "a", "keys": ["b"]}, "key and keys are both given"),
        ({"key": "a b"}, "'a b': a key is a text that is not empty and has no space"),
        ({"keys": [""]}, "key ''"),
        ({"start": 1_700_000_000}, "looks like seconds"),
        ({"start": 1_700_000_000_001, "end": 1_700_000_000_000}, "end is 1700000000000, before start"),
        ({"offsets": {0: (5, 4)}}, "orders queue 0 are 5 to 4"),
        ({"offsets": {0: (-1, 4)}}, "orders queue 0 are -1 to 4"),
        ({"offsets": {("bills", 0): (0, 1)}}, "topic 'bills', which is not read"),
        ({"topics": ["a", "b"], "offsets": {0: (0, 1)}}, "with several topics"),
        ({"thread_count": 0}, "thread_count is 0: expected 1 to 64"),
        ({"window_bytes": 0}, "window_bytes is 0"),
        ({"frame_size_bytes": 9 << 20}, "frame_size_bytes is 9437184: expected 1 to 8388608"),
        ({"compression": "gzip"}, "compression is 'gzip'"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], text: str) -> None:
    """They are refused before any call, with their value."""
    with pytest.raises(ValueError, match=text):
        frames.read("127.0.0.1:1", **{"topics": "orders", **arguments})


@pytest.mark.parametrize("break_after", [[0], [1], [2, 0, 1], [1] * 12])
def test_broken_streams_change_no_row(
    indexer: FakeIndexer, client: reput_client.Client, break_after: list[int]
) -> None:
    """Streams of several threads break, and each resumes where it broke."""
    indexer.fill("orders", 4, 20)
    indexer.break_after = break_after
    assert places(frames.read(client, "orders")) == all_of(["orders"], 4, 20)
    indexer.break_after = [1, 1]
    found = places(frames.read(client, "orders", keys=["k1", "k2"]))
    assert sorted(found) == [place for place in all_of(["orders"], 4, 20) if place[2] % 5 in (1, 2)]


def test_the_error_of_a_read(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """It is the client's, and comes after the rows before it."""
    with pytest.raises(reput_client.NotFoundError, match="TOPIC_NOT_FOUND"):
        frames.read(client, "nothing")
    indexer.fill("orders", 2, 10)
    read = iter(frames.read(client, "orders", thread_count=1))
    indexer.break_after, indexer.break_code = [2], grpc.StatusCode.INVALID_ARGUMENT
    assert places(islice(read, 2)) == [("orders", 0, row) for row in range(6)]
    with pytest.raises(reput_client.InvalidArgumentError, match="broken on purpose"):
        next(read)
    assert threads() == []


def test_nobody_answers() -> None:
    """After the retries it is an UnavailableError."""
    with (
        reput_client.connect(indexer="127.0.0.1:1,127.0.0.1:2", retry=FAST) as client,
        pytest.raises(reput_client.UnavailableError),
    ):
        frames.read(client, "orders")


def test_an_early_end_ends_threads_and_calls(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """By break, by an exception, by close, and when nobody has the reader any more; silent streams included."""
    indexer.fill("orders", 8, 50)
    indexer.silent_after = [2] * 100
    with frames.read(client, "orders") as read:
        assert len(list(islice(read, 2))) == 2
        assert threads() == []
        with pytest.raises(ZeroDivisionError):
            sum(1 // 0 for _ in read)
        assert threads() == []
        reader = read.to_reader()
        reader.read_next_batch()
        assert threads()
        del reader
        assert threads() == []
        batches = iter(read)
        next(batches)
    assert threads() == []
    with pytest.raises(ValueError, match="closed"):
        list(batches)


def test_a_read_waits_in_bounded_memory(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """A consumer that takes nothing lets the Indexer send a window, not the topic."""
    indexer.fill("orders", 4, 600)
    batches = iter(frames.read(client, "orders", columns=["value"], window_bytes=2_000))
    next(batches)
    sent = -1
    while sent != (sent := sum(len(scan.partition.ranges) for scan in indexer.scans())):
        time.sleep(0.05)
    rest = sum(batch.num_rows for batch in batches)
    assert rest == 2_400 - 3
    assert sent <= 4


def test_progress(indexer: FakeIndexer, client: reput_client.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """A function gets each step; a line shows the end."""
    indexer.fill("orders", 2, 9)
    steps: list[Progress] = []
    frames.read(client, "orders", progress=steps.append).to_arrow()
    assert [step.row_count for step in steps] == [3, 6, 9, 12, 15, 18, 18]
    assert [step.is_done for step in steps] == [False] * 6 + [True]
    assert steps[-1].planned_row_count == 18
    frames.read(client, "orders", progress=True).to_arrow()
    shown = capsys.readouterr().err
    assert shown.startswith("\rorders: 3 of 18 rows, partition 0 of 2")
    assert "\rorders: 18 of 18 rows, partition 2 of 2" in shown
    assert shown.endswith("rows/s\n")
    out, now_s = io.StringIO(), iter([0.0, 0.1, 0.3])
    line = Line("x", out, lambda: next(now_s))
    for count in (1, 2, 3):
        line(Progress(count, 0, 2, None, 0.0))
    assert out.getvalue() == "\rx: 1 rows, partition 0 of 2\rx: 3 rows, partition 0 of 2"


def test_a_plan_is_put_in_order(subtests: pytest.Subtests) -> None:
    """Whatever the Indexer packs together, rows come by topic, queue and offset, and no partition is larger."""

    def planned(*ranges: tuple[str, int, int, int]) -> ScanPartition:
        found = ScanPartition(row_count=sum(end - start for *_, start, end in ranges))
        for topic, queue_id, start, end in ranges:
            found.ranges.add(topic=topic, queue_id=queue_id, start_queue_offset=start, end_queue_offset=end)
        return found

    plan = [planned(("b", 0, 0, 5), ("a", 2, 0, 5)), planned(("a", 0, 5, 10)), planned(("a", 0, 0, 5), ("a", 1, 7, 9))]
    ordered = in_order(plan, ["b", "a"])
    flat = [(one.topic, one.queue_id, one.start_queue_offset) for part in ordered for one in part.ranges]
    assert flat == [("b", 0, 0), ("a", 0, 0), ("a", 0, 5), ("a", 1, 7), ("a", 2, 0)]
    assert [part.row_count for part in ordered] == [10, 7, 5]
    assert in_order([], ["a"]) == []
    many = [planned(*(("a", queue, 0, 1) for queue in range(25_000)))]
    assert [len(part.ranges) for part in in_order(many, ["a"])] == [10_000, 10_000, 5_000]
    with pytest.raises(frames.BadAnswerError, match="topic 'c', which was not asked for"):
        in_order([planned(("c", 0, 0, 1))], ["a"])


def answer(start: int, end: int, batch: pa.RecordBatch | None, topic: str = "orders") -> ScanAnswer:
    sink = pa.BufferOutputStream()
    if batch is not None:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    covered = ScanRange(topic=topic, queue_id=0, start_queue_offset=start, end_queue_offset=end)
    return ScanAnswer(memoryview(sink.getvalue().to_pybytes()), covered)


OFFSETS = pa.record_batch({"offset": pa.array([5, 6], pa.int64())})


@pytest.mark.parametrize(
    ("hostile", "text"),
    [
        (answer(0, 5, OFFSETS), "outside of what was asked for"),
        (answer(9, 11, OFFSETS), "outside"),
        (answer(7, 6, OFFSETS), "outside"),
        (answer(5, 4, OFFSETS), "outside"),
        (answer(5, 7, OFFSETS, "other"), "outside"),
        (answer(5, 6, OFFSETS), "more rows than entries"),
        (answer(5, 7, OFFSETS.rename_columns(["other"])), "column 'offset' is missing"),
        (answer(5, 7, OFFSETS.cast(pa.schema({"offset": pa.int32()}))), "came as int32, not int64"),
        (ScanAnswer(memoryview(b"garbage" * 10), answer(5, 7, None).range), "not Arrow"),
        (ScanAnswer(answer(5, 7, OFFSETS).arrow_ipc[:-20], answer(5, 7, None).range), "not Arrow"),
    ],
)
def test_hostile_answers_are_refused(hostile: ScanAnswer, text: str) -> None:
    """An answer outside of the range, with too many rows, other columns or no Arrow is an error, not a row."""
    asked = ScanPartition()
    asked.ranges.add(topic="orders", queue_id=0, start_queue_offset=5, end_queue_offset=10)
    with pytest.raises(frames.BadAnswerError, match=text):
        list(RangeReader(asked, schema_of(("offset",))).rows(hostile))


def test_hostile_streams_end_the_read(indexer: FakeIndexer, client: reput_client.Client, monkeypatch: Any) -> None:
    """A plan of other topics, an answer that is no protobuf, frames twice: the error is the client's."""
    indexer.fill("orders", 1, 9)
    honest = indexer.range_answers
    monkeypatch.setattr(indexer, "range_answers", lambda request: (one for one in honest(request) for _ in range(2)))
    with pytest.raises(frames.BadAnswerError, match="outside of what was asked for"):
        frames.read(client, "orders").to_arrow()
    monkeypatch.setattr(indexer, "range_answers", lambda _: iter([ScanResponse(arrow_ipc=b"x" * 100)]))
    with pytest.raises(frames.BadAnswerError):
        frames.read(client, "orders").to_arrow()
    wrong = PlanScanResponse()
    wrong.partitions.add(row_count=5).ranges.add(topic="bills", end_queue_offset=5)
    with pytest.raises(frames.BadAnswerError, match="'bills', which was not asked for"):
        in_order(wrong.partitions, ["orders"])


def test_columns_are_aligned(indexer: FakeIndexer, client: reput_client.Client) -> None:
    """As Arrow wants them, wherever a frame lies in its answer."""
    indexer.fill("orders", 2, 40)
    for batch in frames.read(client, "orders", columns=["offset", "timestamp", "value"]):
        for column in batch.columns:
            assert all(buffer is None or buffer.address % 8 == 0 for buffer in column.buffers())


def test_frames_of_the_indexer() -> None:
    """A frame that is not Arrow, lacks a column or has another type is an error, not a guess."""
    with pytest.raises(frames.BadAnswerError, match="not Arrow"):
        list(batches_of(memoryview(b"garbage" * 10)))
    batch = pa.record_batch({"offset": pa.array([1], pa.int32())})
    with pytest.raises(frames.BadAnswerError, match="int32, not int64"):
        conform(batch, schema_of(("offset",)), {})
    with pytest.raises(frames.BadAnswerError, match="'key' is missing"):
        conform(batch, schema_of(("key",)), {})


PROGRAM = """
from clients.spark.tests.conftest import served
from reput_client import frames
with served() as fake:
    fake.fill("orders", 4, 300)
    reader = frames.read(fake.endpoint, "orders").to_reader()
    print(reader.read_next_batch().num_rows)
"""


def test_a_program_may_end_with_an_open_read() -> None:
    """It ends at once, though threads of the read wait for room."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_without_arrow() -> None:
    """A program without the extra is told its name. The rest of the client does without."""
    program = "import sys; sys.modules['pyarrow'] = None; from reput_client import connect, frames; frames.read"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.stderr.endswith("reput_client.frames needs pyarrow: install reput-client[frames]\n")
