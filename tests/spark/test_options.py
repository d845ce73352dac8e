# SPDX-License-Identifier: Apache-2.0
"""Batch reads with random options, through the connector's plan and read, against the records of the log itself.

They run without Spark, which has no part in the meaning of an option. REPUT_SPARK_COMBINATIONS sets their number, by
default 60. REPUT_SPARK_SEED repeats a run.
"""

import json
import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc, log_service_pb2, log_service_pb2_grpc
from reput.indexer.v1 import index_service_pb2, index_service_pb2_grpc
from reput_client.frames.columns import schema_of
from reput_spark.read.options import ReadOptions, parse
from reput_spark.read.plan import plan
from reput_spark.read.scan import read
from reput_spark.read.schema import SPARK_TYPES

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("REPUT_SPARK_SEED", "1"))
COMBINATION_COUNT = int(os.environ.get("REPUT_SPARK_COMBINATIONS", "60"))
TOPICS = ("orders", "orders-eu", "payments")
QUEUE_COUNT = 4
TAGS = ("", "red", "green", "blue")
Row = dict[str, Any]


class Store:
    """An Indexer's address, and every message of the log as a row."""

    def __init__(self, indexer: str, rows: list[Row]) -> None:
        self.indexer = indexer
        self.rows = rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with some thousand messages in three topics, over a second of store time."""
    directory: Path = tmp_path_factory.mktemp("store")
    log = FixedService("commitlog", directory / "log").start()
    indexer = FixedService("indexer", directory / "indexes", "--commitlog-target", log.target).start()
    with grpc.insecure_channel(log.target) as channel, grpc.insecure_channel(indexer.target) as index_channel:
        fill(append_service_pb2_grpc.AppendServiceStub(channel))
        stub = log_service_pb2_grpc.LogServiceStub(channel)
        end = stub.GetStatus(log_service_pb2.GetStatusRequest()).max_physical_offset
        index = index_service_pb2_grpc.IndexServiceStub(index_channel)
        while index.GetStatus(index_service_pb2.GetStatusRequest()).indexed_physical_offset < end:
            time.sleep(0.02)
        messages = [one for step in stub.StreamRecords(log_service_pb2.StreamRecordsRequest()) for one in step.messages]
    yield Store(indexer.target, [row_of(one) for one in messages])
    indexer.stop()
    log.stop()


def fill(stub: append_service_pb2_grpc.AppendServiceStub) -> None:
    """Append batches of messages with keys and tags, a few milliseconds apart."""
    chance = random.Random(SEED)
    for number in range(150):
        request = append_pb.AppendRequest()
        for index in range(chance.randint(1, 40)):
            keys = " ".join(f"K{chance.randrange(60)}" for _ in range(chance.randrange(3)))
            found = {"KEYS": keys, "TAGS": chance.choice(TAGS), "UNIQ_KEY": f"U{number}-{index}"}
            request.messages.add(
                topic=chance.choice(TOPICS),
                queue_id=chance.randrange(QUEUE_COUNT),
                body=f"{number}-{index}".encode() * chance.randint(1, 20),
                properties={name: text for name, text in found.items() if text},
                flag=chance.randrange(5),
                born_time_ms=1_600_000_000_000 + number,
            )
        stub.Append(request, timeout=LIMIT_S)
        time.sleep(0.005)


def row_of(message: Any) -> Row:
    """Return a message of the log as the connector's columns. Times are in milliseconds."""
    pairs = dict(message.properties)
    return {
        "key": pairs.get("KEYS"),
        "value": message.body,
        "topic": message.topic,
        "partition": message.queue_id,
        "offset": message.queue_offset,
        "timestamp": message.store_time_ms,
        "timestampType": 1,
        "tag": pairs.get("TAGS"),
        "properties": {name: text for name, text in pairs.items() if name != "__CRC32#"},
        "born_timestamp": message.born_time_ms,
        "physical_offset": message.physical_offset,
        "flag": message.flag,
        "keys": {*pairs.get("KEYS", "").split(" "), pairs["UNIQ_KEY"]},
    }


def drawn(chance: random.Random, rows: list[Row]) -> dict[str, str]:
    """Return random options, most of which about half of the rows pass."""
    options: dict[str, str] = {}
    topics = chance.sample(TOPICS, chance.randint(1, 3))
    how = chance.choice(("subscribe", "subscribe", "subscribePattern", "assign"))
    if how == "subscribe":
        options[how] = ",".join(topics)
    elif how == "subscribePattern":
        options[how] = chance.choice(("orders", "orders.*", ".*", "p.*|orders-eu"))
    else:
        options[how] = json.dumps({topic: chance.sample(range(QUEUE_COUNT), chance.randint(1, 4)) for topic in topics})
    if how != "assign" and chance.random() < 0.3:
        options["queues"] = ",".join(map(str, chance.sample(range(QUEUE_COUNT), chance.randint(1, 3))))
    for first, names in (
        (True, ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")),
        (False, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")),
    ):
        if chance.random() < 0.5:
            name = chance.choice(names)
            options[name] = bound(chance, rows, topics, name, first=first)
    options.setdefault("startingOffsetsByTimestampStrategy", "latest")
    if chance.random() < 0.3:
        options["tag"] = "||".join(chance.sample(TAGS[1:], chance.randint(1, 2)))
    if chance.random() < 0.3:
        options["where"] = f"UNIQ_KEY NOT ENDSWITH '{chance.randrange(10)}'"
    if chance.random() < 0.4:
        options["keys"] = json.dumps([chance.choice(("K%d", "U%d-0")) % chance.randrange(60) for _ in range(3)])
    for name, values in {
        "minPartitions": ("2", "7"),
        "maxRecordsPerPartition": ("10", "500"),
        "maxBytesPerPartition": ("4k", "1m"),
        "fetchBytes": ("1k", "100k"),
        "compression": ("lz4", "zstd", "none"),
        "failOnDataLoss": ("false",),
    }.items():
        if chance.random() < 0.4:
            options[name] = chance.choice(values)
    if options.get("startingTimestamp", "0") > options.get("endingTimestamp", "9"):
        del options["startingTimestamp"]
    return options


def bound(chance: random.Random, rows: list[Row], topics: list[str], name: str, *, first: bool) -> str:
    """Return the value of an option for the begin or end of reading."""
    moment = chance.choice(rows)["timestamp"] + chance.choice((-1, 0, 1))
    if name.endswith("Timestamp") and "Offsets" not in name:
        return str(moment)
    values = (moment,) if "Time" in name else (-2, 0, 5, 60) if first else (-1, 60, 100, 110)
    queues = chance.sample(range(QUEUE_COUNT), chance.randint(1, 3))
    return json.dumps({topic: {str(queue): chance.choice(values) for queue in queues} for topic in topics})


def expected(options: ReadOptions, rows: list[Row]) -> list[Row]:
    """The rows that the options mean."""
    return [row for row in rows if is_meant(options, row) and passes(options, row)]


def is_meant(options: ReadOptions, row: Row) -> bool:
    """Whether the row lies in a queue and a range that the options name."""
    topic, queue_id = row["topic"], row["partition"]
    if options.assigned:
        is_named = queue_id in options.assigned.get(topic, ())
    else:
        is_named = topic in options.topics or bool(options.topic_pattern and re.fullmatch(options.topic_pattern, topic))
        is_named = is_named and (not options.queue_ids or queue_id in options.queue_ids)
    start = options.starting_offsets.get(topic, {}).get(queue_id, -2)
    end = options.ending_offsets.get(topic, {}).get(queue_id, -1)
    since = options.starting_times_ms.get(topic, {}).get(queue_id, 0)
    until = options.ending_times_ms.get(topic, {}).get(queue_id, 1 << 60)
    is_inside = start <= row["offset"] and (end == -1 or row["offset"] < end)
    return is_named and is_inside and since <= row["timestamp"] < until


def passes(options: ReadOptions, row: Row) -> bool:
    """Whether the row passes the filters."""
    since = options.start_time_ms or 0
    until = 1 << 60 if options.end_time_ms is None else options.end_time_ms
    has_tag = not options.tag_expression or row["tag"] in options.tag_expression.split("||")
    has_key = not options.keys or bool(row["keys"] & set(options.keys))
    is_wanted = not options.where or row["properties"]["UNIQ_KEY"][-1] != options.where[-2]
    return has_tag and has_key and is_wanted and since <= row["timestamp"] < until


def shown(row: Row, columns: tuple[str, ...]) -> tuple[Any, ...]:
    """Return a row of either side in a form that can be compared."""
    cells = []
    for name in columns:
        cell = row[name]
        if name in ("timestamp", "born_timestamp") and not isinstance(cell, int):
            cell = round(cell.timestamp() * 1000)
        cells.append(tuple(sorted(dict(cell).items())) if name == "properties" else cell)
    return tuple(cells)


def test_options_mean_what_the_log_says(store: Store) -> None:
    """Each combination reads exactly the rows that its options mean, in any partitioning, with any columns."""
    chance = random.Random(SEED)
    all_columns = [name for name in SPARK_TYPES if name not in ("message_id", "sys_flag", "headers")]
    counts = []
    for _ in range(COMBINATION_COUNT):
        given = drawn(chance, store.rows)
        columns = tuple(chance.sample(all_columns, chance.randint(1, len(all_columns))))
        columns = tuple(dict.fromkeys((*columns, "topic", "partition", "offset")))
        options = parse({"endpoint": store.indexer, **given})
        partitions = plan(options)
        batches = [batch for partition in partitions for batch in read(options, columns, partition)]
        assert all(batch.schema.equals(schema_of(columns)) for batch in batches)
        found = [shown(row, columns) for batch in batches for row in batch.to_pylist()]
        wanted = [shown(row, columns) for row in expected(options, store.rows)]
        assert sorted(found, key=repr) == sorted(wanted, key=repr), (given, columns)
        counts.append(len(found))
    assert sum(count > 0 for count in counts) > COMBINATION_COUNT // 2
