# SPDX-License-Identifier: Apache-2.0
"""Tables as messages: the part of a message that each column is, refusals by row, and each row a single time."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import grpc
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import reput_client
from reput_client import RetryPolicy, frames
from reput_client.frames import rows

from clients.python.tests.support import Log, serving, status

QUICK = RetryPolicy(retries=3, delay_min_s=0.001, delay_max_s=0.001)
ROWS = pa.table({"value": [f"body {number}" for number in range(1_000)], "id": range(1_000)})
BODIES = [body.encode() for body in ROWS["value"].to_pylist()]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def client(log: Log) -> Iterator[reput_client.Client]:
    with serving(log) as target, reput_client.connect(commitlog=target, retry=QUICK) as client:
        yield client


def properties_of(message: Any) -> dict[str, str]:
    return dict(pair.split("\x01") for pair in message.property_string.decode().split("\x02") if pair)


def test_every_column_has_its_place(log: Log, client: reput_client.Client) -> None:
    """Keys, tags, properties, queues and times; nulls and empty texts are left out."""
    table = pa.table(
        {
            "text": ["a", "b", ""],
            "order": [17, None, 18],
            "state": ["new", "", None],
            "region": pa.array(["eu", None, "us"]).dictionary_encode(),
            "price": [1.5, 2.0, None],
            "queue": pa.array([3, None, 0], pa.int64()),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None, None], pa.timestamp("ns", tz="UTC")),
            "other": [object.__name__] * 3,
        }
    )
    written = frames.write(
        client, "orders", table, body="text", key="order", tag="state", queue_id="queue", born_time="at", by_key=True,
        properties={"region": "region", "cost": "price"},
    )  # fmt: skip
    assert (written.message_count, written.repeated_message_count) == (3, 0)
    assert [(one.topic, one.body, one.HasField("queue_id"), one.queue_id) for one in log.stored] == [
        ("orders", b"a", True, 3), ("orders", b"b", False, 0), ("orders", b"", True, 0),
    ]  # fmt: skip
    assert [one.born_time_ms for one in log.stored] == [1_767_225_600_000, 0, 0]
    assert [properties_of(one) for one in log.stored] == [
        {"region": "eu", "cost": "1.5", "TAGS": "new", "KEYS": "17", "__SHARDINGKEY": "17"},
        {"cost": "2"},
        {"region": "us", "KEYS": "18", "__SHARDINGKEY": "18"},
    ]


def test_maps_and_lists(log: Log, client: reput_client.Client) -> None:
    """Properties as a map, a list of structs and a struct; several keys of a row; columns by name."""
    kinds = {
        "map": pa.array([[("a", "1"), ("b", None)]], pa.map_(pa.string(), pa.string())),
        "pairs": pa.array([[{"key": "a", "value": "1"}, {"key": "b", "value": ""}]]),
        "struct": pa.array([{"a": "1", "b": None}]),
    }
    for column in kinds.values():
        frames.write(client, "t", pa.table({"value": ["x"], "p": column}), properties="p")
    table = pa.table({"value": ["x"], "a": [1], "many": [["k1", "k2"]]})
    frames.write(client, "t", table, properties=["a"], keys="many")
    assert [properties_of(one) for one in log.stored] == [{"a": "1"}] * 3 + [{"a": "1", "KEYS": "k1 k2"}]


def test_all_kinds_of_data(log: Log, client: reput_client.Client) -> None:
    """Tables, batches, readers, polars, pandas and DuckDB; the same rows make the same messages."""
    chunked = pa.concat_tables([ROWS.slice(0, 10), ROWS.slice(10, 1), ROWS.slice(11)])
    relation = duckdb.sql("SELECT 'body ' || range AS value, range AS id FROM range(1000)")
    kinds: list[Any] = [
        ROWS, chunked, ROWS.combine_chunks().to_batches()[0], ROWS.to_reader(7), iter(ROWS.to_batches()),
        pl.DataFrame(ROWS), pd.DataFrame({"value": ROWS["value"].to_pylist(), "id": range(1_000)}), relation,
    ]  # fmt: skip
    for data in kinds:
        log.stored.clear()
        assert frames.write(client, "t", data, key="id").message_count == 1_000
        assert [one.body for one in log.stored] == BODIES
        assert [properties_of(one)["KEYS"] for one in log.stored] == list(map(str, range(1_000)))
    assert frames.write(client, "t", ROWS.slice(0, 0)).message_count == 0
    with pytest.raises(TypeError, match="data has a int"):
        frames.write(client, "t", [1])


@pytest.mark.parametrize("how", [ConnectionError, ConnectionResetError])
def test_a_broken_stream_loses_and_repeats_nothing(log: Log, client: reput_client.Client, how: type[Exception]) -> None:
    """With and without a name of the writer."""
    for writer_id in (None, "job-1"):
        log.stored.clear()
        log.plan = lambda count, _: how() if count % 7 == 3 else None
        written = frames.write(client, "t", ROWS, writer_id=writer_id, batch_size_bytes=500, window_bytes=2_000)
        assert [one.body for one in log.stored] == BODIES
        assert written.message_count == 1_000


def test_a_program_that_writes_again(log: Log, client: reput_client.Client) -> None:
    """A write that was killed after any batch is done again, with the table cut in another way: no row is lost."""

    class Killed(Exception):
        """Stands for the end of the program."""

    def killed() -> Iterator[pa.RecordBatch]:
        yield from ROWS.slice(0, 700).to_batches()
        raise Killed

    with pytest.raises(Killed):
        frames.write(client, "t", killed(), writer_id="job-1", batch_size_bytes=500, window_bytes=600)
    stored_count = len(log.stored)
    assert 0 < stored_count <= 700
    written = frames.write(client, "t", ROWS.to_reader(33), writer_id="job-1", batch_size_bytes=500)
    assert [one.body for one in log.stored] == BODIES
    assert written.message_count == 1_000
    assert stored_count <= written.repeated_message_count <= 700  # batches in flight were stored meanwhile


def test_other_rows_under_the_same_writer_id(log: Log, client: reput_client.Client) -> None:
    """They are refused, for the log would take them for rows that it has."""
    frames.write(client, "t", ROWS, writer_id="job-1")
    assert frames.write(client, "t", ROWS, writer_id="job-1").repeated_message_count == 1_000
    with pytest.raises(reput_client.AlreadyExistsError, match="WRITER_CONTENT_DIFFERS"):
        frames.write(client, "t", ROWS.slice(1), writer_id="job-1")
    assert [one.body for one in log.stored] == BODIES


@pytest.mark.parametrize(
    ("values", "arguments", "text"),
    [
        ({"value": [b"x", None]}, {}, "column 'value' of row 5001 is null"),
        ({"value": ["x", "y"], "k": ["a", "b c"]}, {"key": "k"}, "column 'k' of row 5001 has the key 'b c'"),
        ({"value": ["x", "y"], "k": [["a"], ["b", ""]]}, {"keys": "k"}, "column 'k' of row 5001 has the key ''"),
        ({"value": ["x", "y"], "k": [b"a", b"\xff"]}, {"tag": "k"}, "column 'k' of row 5001 is not UTF-8"),
        ({"value": ["x", "y"], "q": [0, -1]}, {"queue_id": "q"}, "column 'q' of row 5001 is -1, below 0"),
        ({"value": ["x", "y"], "q": [0, 2**31]}, {"queue_id": "q"}, "column 'q' of row 5001 is 2147483648"),
        ({"value": ["x", "y"], "p": ["a", "b\x02"]}, {"properties": ["p"]}, "of row 5001 can't be stored: a property"),
    ],
)
def test_bad_rows_have_a_column_and_a_number(
    client: reput_client.Client, values: dict[str, list[Any]], arguments: dict[str, Any], text: str
) -> None:
    """Counted over all batches of the data."""
    bad = pa.table(values)
    good = pa.concat_tables([bad.slice(0, 1)] * 5_000).combine_chunks()
    with pytest.raises(frames.BadRowError, match=text) as caught:
        frames.write(client, "t", pa.concat_tables([good, bad]), **arguments)
    assert caught.value.row == 5_001


def test_a_row_that_is_too_large(client: reput_client.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has its size and the limit."""
    monkeypatch.setattr(rows, "CHUNK_SIZE_BYTES_MAX", 1_000)
    table = pa.table({"value": ["x", "y" * 1_500]})
    with pytest.raises(frames.BadRowError, match="row 1 has 1500 bytes; a batch has at most 1000 bytes"):
        frames.write(client, "t", table)


@pytest.mark.parametrize("window_bytes", [8 << 20, 600])
def test_the_log_refuses_a_row(log: Log, client: reput_client.Client, window_bytes: int) -> None:
    """The error names the row, whichever batch it came in, and the limit."""
    large = status(
        grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE",
        metadata={"field": "messages[3].body", "value": "9", "limit": "8"},
    )  # fmt: skip
    refused: list[str] = []

    def plan(number: int, messages: list[Any]) -> Any:
        if number < 5:
            return None
        refused.append(messages[3].body.decode())
        return large

    log.plan = plan
    with pytest.raises(frames.BadRowError, match=r"'value' of row .* is refused: MESSAGE_TOO_LARGE.*is 8") as caught:
        frames.write(client, "t", ROWS, batch_size_bytes=500, window_bytes=window_bytes)
    assert ROWS["value"][caught.value.row].as_py() == refused[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"body": "text"}, "body is column 'text': there are value, id"),
        ({"body": "id"}, "body is column 'id', which has type int64"),
        ({"key": "k"}, "key is column 'k'"),
        ({"keys": "value"}, "keys is column 'value', which has type string"),
        ({"properties": "id"}, "properties is column 'id', which has type int64"),
        ({"properties": ["nothing"]}, "property nothing is column 'nothing'"),
        ({"queue_id": "value"}, "queue_id is column 'value'"),
        ({"born_time": "value"}, "born_time is column 'value'"),
        ({"key": "id", "keys": "id"}, "both given"),
        ({"by_key": True}, "by_key needs"),
        ({"batch_size_bytes": 0}, "batch_size_bytes is 0: expected 1 to 8388608"),
        ({"batch_size_bytes": 9 << 20, "window_bytes": 16 << 20}, "batch_size_bytes is 9437184"),
    ],
)
def test_columns_that_can_be_no_part(client: reput_client.Client, arguments: dict[str, Any], text: str) -> None:
    """They are refused before the first row."""
    with pytest.raises(ValueError, match=text):
        frames.write(client, "t", ROWS, **arguments)


def test_memory_is_bounded(log: Log, client: reput_client.Client) -> None:
    """Data is taken as the log takes it: a window, and a batch of the data."""
    taken = 0

    def data() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(200):
            taken += 1
            yield pa.record_batch({"value": ["x" * 1_000] * 10})

    most = 0

    def plan(*_: Any) -> None:
        nonlocal most
        most = max(most, taken * 10 - len(log.stored))

    log.plan = plan
    assert frames.write(client, "t", data(), batch_size_bytes=10_000, window_bytes=50_000).message_count == 2_000
    assert most <= 100
