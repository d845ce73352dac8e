# SPDX-License-Identifier: Apache-2.0
"""Options: accepted values, refused values, and the words of the refusals."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from reput_spark.errors import BadOption
from reput_spark.read.options import ALIASES, NAMES, ReadOptions, parse
from reput_spark.write.options import parse_write

NEEDED = {"endpoint": "indexer:7102", "subscribe": "orders"}


def test_defaults() -> None:
    """Two options are enough. The rest has the documented defaults."""
    options = parse(NEEDED)
    assert (options.endpoints, options.topics) == (("indexer:7102",), ("orders",))
    assert (options.partition_row_count_max, options.partition_size_bytes_max) == (1_000_000, 134_217_728)
    assert (options.frame_size_bytes, options.rpc_timeout_ms, options.retry_count_max) == (1_048_576, 30_000, 3)
    assert options.fail_on_data_loss
    assert options.include_properties
    assert (options.keys, options.tag_expression, options.queue_ids, options.compression) == ((), "", (), "")


@pytest.mark.parametrize(
    ("given", "attribute", "expected"),
    [
        ({"endpoint": "a:1,[::1]:2"}, "endpoints", ("a:1", "[::1]:2")),
        ({"subscribe": "b, a,b"}, "topics", ("b", "a")),
        ({"STARTINGOFFSETS": "Earliest"}, "starting_offsets", {}),
        ({"startingOffsets": '{"orders": {"0": 23, "1": -2}}'}, "starting_offsets", {"orders": {0: 23, 1: -2}}),
        ({"endingOffsets": '{"orders": {"3": -1}}'}, "ending_offsets", {"orders": {3: -1}}),
        ({"startingTimestamp": "1700000000123"}, "start_time_ms", 1_700_000_000_123),
        ({"startingTimestamp": "2013-07-01T00:00:00Z"}, "start_time_ms", 1_372_636_800_000),
        ({"endingTimestamp": "2013-07-01T02:00:00+02:00"}, "end_time_ms", 1_372_636_800_000),
        ({"endingTimestamp": "1970-01-01T00:00:00.000001Z"}, "end_time_ms", 1),
        ({"key": "O-17"}, "keys", ("O-17",)),
        ({"keys": '["b", "a", "b"]'}, "keys", ("b", "a")),
        ({"tag": "*"}, "tag_expression", ""),
        ({"tag": "A||B"}, "tag_expression", "A||B"),
        ({"where": "price > 10"}, "where", "price > 10"),
        ({"queues": "3, 0"}, "queue_ids", (0, 3)),
        ({"minpartitions": "8"}, "partition_count_min", 8),
        ({"maxBytesPerPartition": "64m"}, "partition_size_bytes_max", 67_108_864),
        ({"fetchBytes": "512 KB"}, "frame_size_bytes", 524_288),
        ({"compression": "ZSTD"}, "compression", "zstd"),
        ({"compression": "none"}, "compression", ""),
        ({"includeProperties": "False"}, "include_properties", False),
        ({"binaryKey": "true"}, "has_binary_key", True),
        ({"columns": "VALUE, timestamptype,value"}, "columns", ("value", "timestampType")),
        ({"failOnDataLoss": "false"}, "fail_on_data_loss", False),
    ],
)
def test_values_are_read(given: dict[str, str], attribute: str, expected: object) -> None:
    """Each option's text becomes the value of its row in the documentation. The case of its name is ignored."""
    assert getattr(parse(NEEDED | given), attribute) == expected


def test_names_of_files_are_as_they_are_given() -> None:
    """A blank is a name, too: its user must not be left without TLS, nor send another token."""
    parsed = parse({**NEEDED, "tls.ca.file": " ", "auth.token.file": "a token "})
    assert (parsed.tls_ca_file, parsed.auth_token_file) == (" ", "a token ")


def test_no_two_reads_share_a_value() -> None:
    """A change in the options of a read does not affect another read."""
    first, second = parse(NEEDED), parse(NEEDED)
    assert first.starting_offsets is not second.starting_offsets


def test_aliases_of_kafka_users() -> None:
    """Options of Spark's Kafka source that mean the same have its names, too."""
    assert parse({"bootstrap.servers": "indexer:7102", "topic": "orders"}) == parse(NEEDED)
    kafka = {"kafka.bootstrap.servers": "indexer:7102", "subscribe": "orders", "kafkaConsumer.pollTimeoutMs": "5"}
    kafka |= {"fetchOffset.numRetries": "7", "fetchOffset.retryIntervalMs": "9"}
    ours = {"rpcTimeoutMs": "5", "numRetries": "7", "retryIntervalMs": "9"}
    assert parse(kafka) == parse(NEEDED | ours)


@pytest.mark.parametrize(
    ("given", "option", "words"),
    [
        ({"startingOfsets": "earliest"}, "startingOfsets", "did you mean 'startingOffsets'"),
        ({"path": "orders"}, "path", "subscribe"),
        ({"auth.token": "secret"}, "auth.token", "auth.token.file"),
        ({"topic": "orders"}, "topic", "given twice"),
        ({"kafka.bootstrap.servers": "a:1"}, "kafka.bootstrap.servers", "given twice"),
        ({"kafka.security.protocol": "SSL"}, "kafka.security.protocol", "tls.ca.file"),
        ({"groupIdPrefix": "x"}, "groupIdPrefix", "no consumer group"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger", "trigger"),
        ({"columns": "body"}, "columns", "no column 'body'"),
        ({"columns": "key", "includeHeaders": "true"}, "includeHeaders", "combined"),
        ({"endpoint": "indexer"}, "endpoint", "host:port"),
        ({"endpoint": "indexer:70000"}, "endpoint", "host:port"),
        ({"subscribe": "../x"}, "subscribe", "topic name"),
        ({"subscribe": ""}, "subscribe", "required"),
        ({"startingOffsets": "latest"}, "startingOffsets", "reads nothing"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets", "reads nothing"),
        ({"endingOffsets": "earliest"}, "endingOffsets", "reads nothing"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "startingOffsets", "not subscribed"),
        ({"startingOffsets": "{"}, "startingOffsets", "JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets", "neither"),
        ({"startingOffsets": '{"orders": 1}'}, "startingOffsets", "object of queues"),
        ({"startingOffsets": '{"orders": {"-1": 1}}'}, "startingOffsets", "queue id"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "startingOffsets", "not an offset"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets", "not an offset"),
        ({"startingTimestamp": "2013-07-01T00:00:00"}, "startingTimestamp", "time zone"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp", "ISO-8601"),
        ({"endingTimestamp": "1969-12-31T00:00:00Z"}, "endingTimestamp", "1970"),
        ({"startingTimestamp": "1700000000002", "endingTimestamp": "1700000000001"}, "endingTimestamp", "before"),
        ({"startingTimestamp": "1795844647"}, "startingTimestamp", "1795844647 looks like seconds"),
        ({"endingTimestamp": "1795844647000000"}, "endingTimestamp", "behind the year 9999"),
        ({"startingTimestamp": "1795844647000000000"}, "startingTimestamp", "behind the year 9999"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 1795844647}}'}, "startingOffsetsByTimestamp", "seconds"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 1795844647000000}}'}, "endingOffsetsByTimestamp", "year 9999"),
        ({"startingOffsets": '{"orders": {"00": 1}}'}, "startingOffsets", "'00' is not a queue id"),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 2}}'}, "startingOffsets", "'0' twice"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets", "reads nothing"),
        ({"startingOffsets": "[" * 200_000}, "startingOffsets", "is nested too deeply"),
        ({"startingOffsets": '\ufeff{"orders": {"0": 1}}'}, "startingOffsets", "byte order mark"),
        ({"startingOffsets": f'{{"orders": {{"0": {"9" * 5000}}}}}'}, "startingOffsets", "more digits"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "startingTimestamp", "combined"),
        ({"key": "a", "keys": '["b"]'}, "keys", "combined"),
        ({"key": "two words"}, "key", "spaces"),
        ({"keys": "[]"}, "keys", "0 keys"),
        ({"keys": '["a", 1]'}, "keys", "strings"),
        ({"tag": "A||"}, "tag", "empty tag"),
        ({"queues": "0,x"}, "queues", "not a number"),
        ({"queues": "65536"}, "queues", "65535"),
        ({"minPartitions": "0"}, "minPartitions", "from 1"),
        ({"maxBytesPerPartition": "12x"}, "maxBytesPerPartition", "size"),
        ({"fetchBytes": "9m"}, "fetchBytes", "8388608"),
        ({"compression": "gzip"}, "compression", "lz4"),
        ({"includeProperties": "maybe"}, "includeProperties", "true"),
        ({"rpcTimeoutMs": "-1"}, "rpcTimeoutMs", "from 1"),
        ({"tls.cert.file": "cert.pem"}, "tls.cert.file", "tls.key.file"),
    ],
)
def test_bad_options_are_refused(given: dict[str, str], option: str, words: str) -> None:
    """A bad option is named, with its mistake. The read does not guess a value."""
    with pytest.raises(BadOption, match=words.replace(".", r"\.")) as caught:
        parse(NEEDED | given)
    assert caught.value.option == option


def test_one_address() -> None:
    """The address of the store is that of the Indexer for reads and that of the CommitLog for writes."""
    given = {"store": "a:1, b:1", "subscribe": "orders"}
    assert parse(given).endpoints == ("a:1", "b:1")
    assert parse(given | {"endpoint": "i:2"}).endpoints == ("i:2",)
    assert parse_write({"Store": "a:1", "topic": "orders"}).endpoints == ("a:1",)
    assert parse_write({"store": "a:1", "commitlog.endpoint": "c:2"}).endpoints == ("c:2",)
    for parsed in (parse, parse_write):
        with pytest.raises(BadOption, match="option 'store': 'a' is not host:port"):
            parsed({"store": "a", "subscribe": "orders"} if parsed is parse else {"store": "a"})


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_required_options(missing: str) -> None:
    """Without an endpoint or a topic nothing can be read."""
    with pytest.raises(BadOption, match="required") as caught:
        parse({name: text for name, text in NEEDED.items() if name != missing})
    assert caught.value.option == missing


def test_options_and_errors_cross_processes() -> None:
    """Spark pickles options to its workers and errors back."""
    options: ReadOptions = pickle.loads(pickle.dumps(parse(NEEDED)))
    assert options == parse(NEEDED)
    assert str(pickle.loads(pickle.dumps(BadOption("tag", "is odd")))) == "option 'tag': is odd"


def test_every_option_is_documented() -> None:
    """docs/spark-reference.md has a row for each option and alias."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark-reference.md").read_text()
    assert [name for name in (*NAMES, *ALIASES) if f"`{name}`" not in page] == []


def test_the_source_needs_nothing_heavy() -> None:
    """A package of this kind that fails to import hides all others from Spark, so reading and writing import later."""
    pytest.importorskip("pyspark")
    later = ("grpc", "google.protobuf", "reput", "reput_client")
    program = f"import sys, pyspark_reput; print([name for name in {later!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
