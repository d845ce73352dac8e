# SPDX-License-Identifier: Apache-2.0
"""Rows as messages: the field of each column, refusals, and that the same rows give the same bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput_spark.errors import BadOption, BadRow
from reput_spark.write.options import ALIASES, NAMES, parse_write
from reput_spark.write.rows import Encoder

NEEDED = {"commitlog.endpoint": "commitlog:7101"}
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("tag", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("born_timestamp", pa.timestamp("us", tz="UTC")),
        ("flag", pa.int32()),
        ("offset", pa.int64()),
    ]
)
FULL = {
    "key": "a b",
    "value": b"body \x00\xff",
    "topic": "orders",
    "partition": 3,
    "tag": "red",
    "properties": [("KEYS", "old"), ("UNIQ_KEY", "u1"), ("empty", ""), ("null", None), ("ключ", "значение")],
    "headers": [{"key": "trace", "value": b"t-1"}, {"key": "UNIQ_KEY", "value": b"lost"}],
    "born_timestamp": datetime(2026, 1, 1, 0, 0, 0, 123_999, tzinfo=UTC),
    "flag": -7,
    "offset": 99,
}


def messages(rows: list[dict[str, Any]], **options: str) -> list[AppendMessage]:
    """Return the messages of the rows."""
    schema = pa.schema([field for field in SCHEMA if field.name in rows[0]])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    encoder = Encoder(parse_write(NEEDED | options))
    return list(AppendRequest.FromString(b"".join(encoder.chunks(batch))).messages)


def test_every_column_has_its_place() -> None:
    """Columns override entries of the map, the map overrides headers. Values without text are left out."""
    (message,) = messages([FULL])
    assert (message.topic, message.queue_id, message.body, message.flag) == ("orders", 3, b"body \x00\xff", -7)
    assert message.born_time_ms == 1_767_225_600_123
    pairs = dict(piece.split("\x01") for piece in message.property_string.decode().split("\x02") if piece)
    assert pairs == {"trace": "t-1", "UNIQ_KEY": "u1", "ключ": "значение", "TAGS": "red", "KEYS": "a b"}


def test_a_body_and_a_topic_are_enough() -> None:
    """The log chooses the queue, and the same rows give the same bytes, whenever they are made."""
    rows = [{"value": b""}, {"value": b"x" * 300}]
    made = messages(rows, topic="orders")
    assert [(one.topic, one.HasField("queue_id"), len(one.body), one.born_time_ms) for one in made] == [
        ("orders", False, 0, 0),
        ("orders", False, 300, 0),
    ]
    assert made == messages(rows, topic="orders")


def test_the_option_wins_over_the_column_and_the_key_may_choose_the_queue() -> None:
    """As in Spark's Kafka sink. The log hashes the sharding key."""
    (message,) = messages([FULL], topic="audit", partitionBy="key")
    assert message.topic == "audit"
    assert "__SHARDINGKEY\x01a b\x02" in message.property_string.decode()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"value": None}, "'value' is null"),
        ({"topic": None}, "'topic' is null"),
        ({"partition": -1}, "'partition' is -1"),
        ({"key": "a\x02b"}, "separator"),
        ({"properties": [("a\x01", "b")]}, "separator"),
        ({"properties": [("", "b")]}, "is empty"),
        ({"headers": [{"key": "h", "value": b"\xff"}]}, "'headers' is not UTF-8"),
    ],
)
def test_rows_that_are_no_messages(changes: dict[str, Any], text: str) -> None:
    """Each is refused with the name of its column."""
    with pytest.raises(BadRow, match=text):
        messages([FULL | changes])


def test_text_may_come_as_binary_and_the_other_way_round() -> None:
    """A frame of Spark's Kafka source has binary keys and values."""
    schema = pa.schema([("key", pa.binary()), ("value", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"key": b"k", "value": "ü"}, {"key": None, "value": ""}], schema=schema)
    chunks = b"".join(Encoder(parse_write(NEEDED | {"topic": "t"})).chunks(batch))
    first, second = AppendRequest.FromString(chunks).messages
    assert (first.body, first.property_string, second.property_string) == ("ü".encode(), b"KEYS\x01k\x02", b"")


def test_defaults_of_a_write() -> None:
    """A single option is sufficient. Each row waits for the disk, and batches are stored once."""
    options = parse_write(NEEDED)
    assert (options.endpoints, options.topic, options.durability) == (("commitlog:7101",), "", 2)
    assert (options.is_idempotent, options.changed_replay, options.has_sharding_key) == (True, "append", False)
    assert (options.batch_size_bytes, options.window_size_bytes) == (524_288, 8_388_608)
    assert parse_write({"kafka.bootstrap.servers": "commitlog:7101"}) == options


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"commitlog.endpoint": ""}, "commitlog.endpoint"),
        ({"topic": "a b"}, "topic"),
        ({"partitionBy": "value"}, "partitionBy"),
        ({"durability": "replicas"}, "durability"),
        ({"idempotent": "yes"}, "idempotent"),
        ({"changedReplay": "skip"}, "changedReplay"),
        ({"batchBytes": "9m"}, "batchBytes"),
        ({"windowBytes": "1k"}, "windowBytes"),
        ({"tls.key.file": "/k"}, "tls.cert.file"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
    ],
)
def test_bad_options_of_a_write(given: dict[str, str], option: str) -> None:
    """Refused by name. Options of a read are unknown here."""
    with pytest.raises(BadOption) as refused:
        parse_write(NEEDED | given)
    assert refused.value.option == option


def test_names_and_aliases_are_distinct() -> None:
    """No name hides another name."""
    lower = [name.lower() for name in (*NAMES, *ALIASES)]
    assert len(lower) == len(set(lower))
