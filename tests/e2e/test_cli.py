# SPDX-License-Identifier: Apache-2.0
"""Every command of `reput` against a running store: its output in both forms, and its exit code."""

import base64
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, SEGMENT_SIZE_BYTES, Store, environment, run_here, start, store

pytestmark = pytest.mark.e2e

NOTHING_REMOVED = {"removed_queue_count": 0, "deleted_queue_file_count": 0, "freed_bytes": 0, "queues": []}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store for all tests. Each test uses its own topics."""
    with store(tmp_path_factory.mktemp("store")) as running:
        yield running


def until_indexed(running: Store, topic: str, count: int) -> None:
    """Wait until the topic has this many indexed messages."""
    end = time.monotonic() + LIMIT_S
    while True:
        result = running.run("topics", "get", topic, "--json")
        if result.code == 0 and sum(queue["max"] - queue["min"] for queue in result.rows[0]["queues"]) >= count:
            return
        assert time.monotonic() < end, result


def test_put_and_find(running: Store) -> None:
    """A message is found by queue, key, time, both ids and tail, with all its fields."""
    (stored,) = running.json(
        "put", "orders", "grüße", "--key", "k1", "--key", "k2", "--tag", "created", "--property", "a=b", "--queue", "2"
    )
    assert (stored["queue_id"], stored["queue_offset"], stored["durability"]) == (2, 0, "LOCAL_DISK")
    until_indexed(running, "orders", 1)
    (message,) = running.json("pull", "orders", "--queue", "2")
    assert (message["body"], message["tag"], message["keys"]) == ("grüße", "created", ["k1", "k2"])
    assert message["properties"]["a"] == "b"
    for name in ("offset_message_id", "unique_id", "physical_offset", "store_time_ms"):
        assert message[name] == stored[name]
    start, end = str(stored["store_time_ms"]), str(stored["store_time_ms"] + 1)
    for question in (
        ("query", "key", "orders", "k2"),
        ("query", "time", "orders", "--start", start, "--end", end),
        ("query", "time", "orders", "--start", message["store_time"], "--queue", "2", "--limit", "1"),
        ("query", "id", stored["offset_message_id"]),
        ("query", "id", stored["unique_id"], "--topic", "orders"),
        ("tail", "orders"),
    ):
        assert running.json(*question) == [message], question
    text = running.run("query", "key", "orders", "k1").output
    assert text.startswith("orders queue 2 offset 0, ")
    assert text.endswith("\n  grüße\n")
    assert running.run("query", "key", "orders", "k1", "--raw").output == "grüße\n"


def test_put_with_a_delay_level_that_there_is_not(running: Store) -> None:
    """A delay level above the last is the last level, as with RocketMQ, and a warning says so."""
    result = running.run("put", "later", "one", "--delay-level", "99")
    assert (result.code, result.errors) == (0, "warning: the store has 18 delay levels: level 99 counts as 18\n")
    assert running.run("put", "later", "one", "--delay-level", "18").errors == ""


def test_put_lines(running: Store) -> None:
    """Each line of standard input is a message, and the messages of a queue are in the order of the lines."""
    lines = [f"line {number}" for number in range(2500)]
    text = "\n".join(lines)
    result = running.run("put", "lines", "--queue", "1", standard_input=text)
    assert (result.code, result.output) == (0, "2500 messages stored in lines\n")
    until_indexed(running, "lines", 2500)
    found = running.run("pull", "lines", "--count", "2500", "--raw").output
    assert found.splitlines() == lines
    assert running.run("tail", "lines", "-n", "2", "--raw").output.splitlines() == lines[-2:]


def test_put_lines_as_they_come(running: Store) -> None:
    """A line is stored before the next line is written, and Ctrl-C ends with the number of stored messages."""
    extra = running.client_environment()
    command, pipe = [*REPUT, "put", "slow-lines"], subprocess.PIPE
    with start(command, extra, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for count in (1, 2):
            process.stdin.write(f"line {count}\n")
            process.stdin.flush()
            until_indexed(running, "slow-lines", count)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("2 messages stored in slow-lines\n", "")


def test_put_with_less_durability_than_asked(tmp_path: Path) -> None:
    """A put that gets less durability than requested prints a warning, and the messages are stored."""
    slow = {"REPUT_FAILPOINTS": "segment.before_sync=sleep:200", "REPUT_COMMITLOG_SYNC_TIMEOUT_MS": "1"}
    with store(tmp_path, extra=slow) as running:
        result = running.run("put", "durable", "a", "b", "--durability", "local-disk")
    assert (result.code, result.output) == (0, "2 messages stored in durable\n")
    assert result.errors == "warning: the store gave durability MEMORY, less than LOCAL_DISK\n"


def test_put_with_more_durability_than_there_is(running: Store) -> None:
    """Without replicas a put with durability `replicated` fails with exit code 4, and stores nothing."""
    result = running.run("put", "durable", "a", "b", "--durability", "replicated")
    assert (result.code, result.output) == (4, "")
    assert "NOT_ENOUGH_REPLICAS" in result.errors
    assert "durable" not in running.run("topics", "list").output
    assert running.run("put", "durable", "a", "--durability", "memory").errors == ""


def test_put_bytes(running: Store) -> None:
    """Bodies are bytes: bytes that are not text are stored unchanged, from an argument and from a line."""
    body = os.fsdecode(b"a\xff\xfe")
    assert running.run("put", "bytes", body, "--queue", "0").code == 0
    assert running.run("put", "bytes", "--queue", "0", standard_input=f"{body}\nb\n").code == 0
    until_indexed(running, "bytes", 3)
    bodies = [base64.b64decode(row["body_base64"]) for row in running.json("pull", "bytes") if "body_base64" in row]
    assert bodies == [b"a\xff\xfe"] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "key", "t", "\udcff"),
        ("query", "id", "\udcff", "--topic", "t"),
        ("query", "time", "t", "--start", "\u00b2"),
        ("query", "time", "t", "--start", "--5"),
        ("pull", "t", "--queue", "0", "--offset", str(2**63)),
        ("groups", "commit", "g", "t", "--queue", str(2**31), "--offset", "1"),
        ("put", "t", "x", "--queue", str(2**31)),
    ],
)
def test_arguments_that_no_request_can_carry(running: Store, arguments: tuple[str, ...]) -> None:
    """Arguments that no request can carry are wrong usage, without a traceback."""
    result = running.run(*arguments)
    assert result.code == 2
    assert "Traceback" not in result.errors


def test_output_is_utf8_wherever_it_goes(running: Store) -> None:
    """Neither a terminal of another encoding nor a closed standard output makes a command fail."""
    assert running.run("put", "umlauts", "gr\u00fc\u00dfe").code == 0
    until_indexed(running, "umlauts", 1)
    extra = running.client_environment()
    ascii_only = environment({**extra, "PYTHONIOENCODING": "ascii"})
    done = subprocess.run([*REPUT, "pull", "umlauts", "--json"], capture_output=True, env=ascii_only, check=True)
    assert json.loads(done.stdout)["body"] == "gr\u00fc\u00dfe"
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *REPUT, "topics", "list"]
    assert subprocess.run(closed, env=environment(extra), check=False).returncode == 0


def test_put_file(running: Store, tmp_path: Path) -> None:
    """A file of JSON lines has all fields of each message, and options fill the missing fields."""
    body = bytes(range(256))
    rows = [
        {"body": "a", "tag": "x", "keys": ["k"], "born_time_ms": 1_000},
        {"body_base64": base64.b64encode(body).decode(), "topic": "files2", "properties": {"p": "q"}, "flag": 3},
    ]
    (tmp_path / "messages.jsonl").write_text("\n\n".join(json.dumps(row) for row in rows))
    results = running.json("put", "files", "--tag", "y", "--file", str(tmp_path / "messages.jsonl"))
    assert [row["number"] for row in results] == [0, 1]
    until_indexed(running, "files", 1)
    until_indexed(running, "files2", 1)
    text = json.dumps({"body": "a"}) + "\n" + json.dumps({"body": "b", "topic": "files3"})
    assert running.run("put", "files4", "--file", "-", standard_input=text).output == "2 messages stored\n"
    (first,), (second,) = running.json("pull", "files"), running.json("pull", "files2")
    assert (first["tag"], first["keys"], first["born_time_ms"]) == ("x", ["k"], 1000)
    assert (second["tag"], second["flag"], base64.b64decode(second["body_base64"])) == ("y", 3, body)
    assert f"0x{body.hex()}" in running.run("pull", "files2").output


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 1: "),
        ("[]", "line 1: not a JSON object"),
        ('{"body": "a", "colour": 1}', "unknown key 'colour'"),
        ('{"body": 1}', "'body' has a value of the wrong type"),
        ('{"body": "a", "queue_id": true}', "'queue_id' has a value of the wrong type"),
        ('{"tag": "a"}', "exactly one of 'body' and 'body_base64'"),
        ('{"body": "a", "body_base64": "YQ=="}', "exactly one of 'body' and 'body_base64'"),
        ('{"body_base64": "!"}', "line 1: "),
        ('{"body": "a", "keys": ["two words"]}', "a key is not empty and has no space"),
    ],
)
def test_put_bad_lines(running: Store, line: str, text: str) -> None:
    """A bad line is named by its number, and the exit code is 2."""
    result = running.run("put", "bad", "--file", "-", standard_input=line)
    assert result.code == 2
    assert result.errors.startswith("error: BAD_")
    assert text in result.errors
    assert len(result.errors.splitlines()) == 1


def test_one_refused_message(running: Store) -> None:
    """A message that the store refuses fails alone, the others are stored, and the exit code is 5."""
    result = running.run("put", "mixed", "good", "x" * 100, "good", "--queue", "0", "--property", "a=b", "--json")
    assert result.code == 0
    rows = "\n".join(json.dumps({"body": "b", "queue_id": queue_id}) for queue_id in (0, 99, 1))
    result = running.run("put", "mixed", "--file", "-", "--json", standard_input=rows)
    assert result.code == 5
    assert [row.get("error", "stored") for row in result.rows] == ["stored", "QUEUE_OUT_OF_RANGE", "stored"]
    assert "1 of 3 messages not stored" in result.errors


@pytest.mark.parametrize("form", ["raw", "json"])
def test_tail_follows(running: Store, form: str) -> None:
    """`tail -f` prints new messages at once, even into a pipe, until it is interrupted."""
    topic = f"live-{form}"
    running.json("put", topic, "before")
    until_indexed(running, topic, 1)
    extra = running.client_environment()
    command = [*REPUT, "tail", topic, "-f", f"--{form}"]
    with start(command, extra, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert "before" in process.stdout.readline()
        running.json("put", topic, "after")
        assert "after" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130


def test_topics(running: Store) -> None:
    """Topics are created, shown, listed, changed and deleted."""
    (made,) = running.json("topics", "create", "made", "--read-queues", "3", "--write-queues", "2")
    assert (made["read_queue_count"], made["write_queue_count"], made["is_writable"]) == (3, 2, True)
    assert running.run("topics", "create", "made").code == 5
    (changed,) = running.json("topics", "update", "made", "--not-writable")
    assert (changed["write_queue_count"], changed["is_writable"]) == (2, False)
    refused = running.run("put", "made", "x")
    assert (refused.code, "TOPIC_FORBIDDEN" in refused.errors) == (5, True)
    no_messages = {"message_count": 0, "first_store_time": None, "last_store_time": None}
    assert changed | no_messages in running.json("topics", "list")
    assert "made" in running.run("topics", "list").output
    assert running.json("topics", "delete", "made", "--yes") == [{"deleted": "made"}]
    assert running.run("topics", "get", "made").code == 3
    assert any(topic["is_system"] for topic in running.json("topics", "list", "--system"))


def test_groups(running: Store) -> None:
    """Groups are committed, listed with their lag, and moved."""
    running.run("put", "grouped", "--queue", "0", standard_input="a\nb\nc\n")
    until_indexed(running, "grouped", 3)
    running.json("groups", "commit", "readers", "grouped", "--queue", "0", "--offset", "1")
    (row,) = running.json("groups", "list", "--group", "readers")
    assert (row["topic"], row["queue_id"], row["queue_offset"], row["lag"]) == ("grouped", 0, 1, 2)
    moved = running.json("groups", "reset", "readers", "grouped", "--to", "latest", "--yes")
    assert next(row["queue_offset"] for row in moved if row["queue_id"] == 0) == 3
    assert running.run("groups", "reset", "readers", "grouped", "--to", "soon").code == 2
    other = running.run("groups", "delete", "readers", "--topic", "another", "--json")
    assert (other.code, other.rows) == (3, [{"group": "readers", "deleted_offset_count": 0}])
    gone = running.run("groups", "delete", "none", "readers", "--yes", "--json")
    assert gone.code == 3
    assert [row["deleted_offset_count"] for row in gone.rows] == [0, len(moved)]
    assert "no offsets of none" in gone.errors
    assert running.json("groups", "list", "--group", "readers") == []


def test_states(running: Store) -> None:
    """Status, segments, health and the Janitor answer in both forms."""
    (status,) = running.json("status")
    assert set(status) == {"commitlog", "indexer", "janitor", "verdict"}
    assert status["verdict"] == {"is_healthy": True, "troubles": []}
    assert status["commitlog"]["segment_size_bytes"] == SEGMENT_SIZE_BYTES
    assert status["indexer"]["state"] in ("LIVE", "CATCHING_UP")
    page = running.run("status").output.splitlines()
    assert page[0] == "healthy"
    assert {line.split()[0] for line in page[2:] if not line.startswith(" ")} >= {"log", "index", "disk", "retention"}
    assert running.json("segments")[-1]["is_active"] is True
    healths = [(row["service"], row["health"]) for row in running.json("health")]
    assert healths == [(name, "SERVING") for name in ("commitlog", "indexer", "janitor")]
    assert running.json("janitor", "policy")[0]["retention_hours"] == 72
    (run_,) = running.json("janitor", "run", "--dry-run")
    assert (run_["is_dry_run"], run_["decisions"][-1]["reason"]) == (True, "ACTIVE")
    assert running.json("janitor", "status")[0]["deleted_segment_count"] == 0
    assert running.json("janitor", "history") == []


def test_removal_of_queues(running: Store) -> None:
    """Queues of a deleted topic are removed after a confirmation, and are listed before and after."""
    running.json("put", "dropped", "body", "--queue", "1")
    until_indexed(running, "dropped", 1)
    assert running.json("index", "remove-expired") == [NOTHING_REMOVED]
    assert running.run("topics", "delete", "dropped", "--yes").code == 0
    queue = {"topic": "dropped", "queue_id": 1, "max_queue_offset": 1}
    assert running.json("index", "remove-unused", "--dry-run")[0]["queues"] == [queue]
    result = running.run("index", "remove-unused")
    assert result.code == 2
    assert "NOT_CONFIRMED" in result.errors
    result = running.run("index", "remove-unused", "--yes")
    assert result.code == 0
    assert result.output.split()[:6] == ["topic", "queue", "id", "max", "queue", "offset"]
    assert "dropped" in result.output
    assert running.json("index", "remove-unused", "--yes") == [NOTHING_REMOVED]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("topics", "delete", "asked"),
            "this would delete topic asked, 2 messages in 1 queue, 1 group (askers) has 1 unread message; ",
        ),
        (("groups", "delete", "askers"), "this would forget 1 offset of askers; "),
        (
            ("groups", "reset", "askers", "asked", "--to", "-1h"),
            "move group askers of topic asked to -1h; it has 1 ",
        ),
        (("janitor", "run"), "this would delete 0 segments (0 B) and keep "),
    ],
)
def test_what_deletes_asks(running: Store, arguments: tuple[str, ...], text: str) -> None:
    """Without a terminal for the question nothing is deleted, and the error says how much would be deleted."""
    running.json("put", "asked", "a", "b", "--queue", "0")
    until_indexed(running, "asked", 2)
    running.json("groups", "commit", "askers", "asked", "--queue", "0", "--offset", "1")
    ends = [queue["max"] for queue in running.json("topics", "get", "asked")[0]["queues"]]
    result = running.run(*arguments)
    assert (result.code, result.output) == (2, "")
    assert result.errors.startswith("error: NOT_CONFIRMED: ")
    assert text.replace("2 messages", f"{sum(ends)} messages") in result.errors
    assert result.errors.endswith("say --yes\n")
    assert [row["queue_offset"] for row in running.json("groups", "list", "--group", "askers")] == [1]


def test_a_rebuild_does_not_ask(running: Store) -> None:
    """A rebuild of the indexes needs no confirmation, because it loses nothing."""
    running.json("put", "rebuilt", "a")
    until_indexed(running, "rebuilt", 1)
    (built,) = running.json("index", "rebuild")
    assert built["record_count"] > 0


def test_times_for_people(running: Store) -> None:
    """Every time option accepts distances, days and clock times."""
    running.json("put", "timed", "a", "--queue", "0")
    until_indexed(running, "timed", 1)
    for text in ("-1h", "1 hour ago", "today 00:00", "yesterday"):
        assert [row["body"] for row in running.json("query", "time", "timed", "--start", text)] == ["a"], text
    assert running.run("query", "time", "timed", "--end", "-1h").code == 3
    running.json("groups", "commit", "timers", "timed", "--queue", "0", "--offset", "1")
    (moved,) = running.json("groups", "reset", "timers", "timed", "--to", "-1h", "--yes")
    assert moved["queue_offset"] == 0


def test_watching(running: Store) -> None:
    """The status is printed again and again, until Ctrl-C."""
    command, extra = [*REPUT, "status", "--watch", "0.2", "--json"], running.client_environment()
    with start(command, extra, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert json.loads(process.stdout.readline())["verdict"]["is_healthy"] is True
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130


def test_status_with_a_silent_service(running: Store) -> None:
    """A service that does not answer in time is named, and the states of the others are shown."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        result = running.run("--janitor", target, "--timeout", "2", "status", "--json")
    assert (result.code, result.errors) == (4, "error: UNAVAILABLE: no answer from janitor\n")
    (status,) = result.rows
    assert status["commitlog"]["segment_size_bytes"] == SEGMENT_SIZE_BYTES
    assert set(status["janitor"]) == {"unavailable"}


def test_inspect(running: Store, tmp_path: Path) -> None:
    """A segment is printed record by record, and a flipped byte is named by record and field, with exit code 6."""
    running.json("put", "inspected", "body")
    segment = next(iter(sorted((running.data_dir / "commitlog").iterdir())))
    result = running.run("inspect", str(segment), "--limit", "1", "--json")
    assert (result.code, result.rows[0]["item"]["number"], result.rows[-1]["summary"]["kind"]) == (0, 0, "segment")
    damaged = tmp_path / "commitlog" / segment.name
    damaged.parent.mkdir()
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    result = running.run("inspect", str(damaged), "--check")
    assert result.code == 6
    assert "record 0" in result.output
    (tmp_path / "unknown").write_bytes(b"?")
    assert running.run("inspect", str(tmp_path / "unknown")).code == 2
    assert running.run("inspect", str(tmp_path / "missing")).code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("query", "key", "orders", "missing"), 3, "error: NO_MESSAGES: "),
        (("query", "time", "orders", "--end", "1970-01-02"), 3, "error: NO_MESSAGES: "),
        (("query", "id", "0" * 32), 3, "error: MESSAGE_NOT_FOUND: "),
        (("query", "id", "C0" * 16), 5, "; if it is a unique id, --topic is needed"),
        (("query", "id", "nonsense"), 5, "error: BAD_ARGUMENT: "),
        (("pull", "missing"), 3, "error: TOPIC_NOT_FOUND: "),
        (("tail", "missing"), 3, "error: TOPIC_NOT_FOUND: "),
        (("tail", "missing", "-f"), 3, "error: TOPIC_NOT_FOUND: "),
        (("query", "key", "missing", "k"), 3, "error: TOPIC_NOT_FOUND: "),
        (("query", "time", "missing"), 3, "error: TOPIC_NOT_FOUND: "),
        (("pull", "orders", "--queue", "77"), 3, "error: QUEUE_NOT_FOUND: topic orders has no queue 77: "),
        (("tail", "orders", "--queue", "77"), 3, "error: QUEUE_NOT_FOUND: topic orders has no queue 77: "),
        (("pull", "orders", "--offset", "1000"), 3, " ends at "),
        (("query", "time", "orders", "--start", "1795397076"), 2, "looks like seconds"),
        (("topics", "get", "missing"), 3, "error: TOPIC_NOT_FOUND: "),
        (("topics", "create", "../x"), 5, "error: BAD_TOPIC_NAME: "),
        (("put", "../x", "y"), 5, "BAD_TOPIC_NAME"),
        (("query", "time", "orders", "--start", "soon"), 2, "'soon' is no time: give"),
        (("put", "t", "x", "--property", "a"), 2, "NAME=VALUE"),
        (("pull", "orders", "--json", "--raw"), 2, "give --json or --raw, not both"),
        (("nonsense",), 2, "nonsense"),
        (("serve", "commitlog", "--nonsense"), 2, "nonsense"),
        (("config", "show", "janitor", "--config", "/missing.toml"), 2, "error: CONFIG: /missing.toml"),
    ],
)
def test_failures(running: Store, arguments: tuple[str, ...], code: int, text: str) -> None:
    """Each failure has its exit code and a line on standard error, and no traceback."""
    result = running.run(*arguments)
    assert (result.code, result.output) == (code, "")
    assert text in result.errors
    assert "Traceback" not in result.errors


def test_a_server_of_another_kind(running: Store) -> None:
    """A command with mixed-up addresses names the server that is not of the expected kind."""
    target = running.targets["commitlog"]
    result = running.run("--indexer", target, "pull", "orders")
    assert result.code == 1
    assert f"the server at {target} is not an Indexer" in result.errors
    assert "is not a CommitLog" in running.run("--commitlog", running.targets["indexer"], "put", "t", "x").errors


def test_nobody_there() -> None:
    """Without a store every command ends soon with exit code 4."""
    away = {f"REPUT_CLIENT_{name}_TARGET": "127.0.0.1:1" for name in ("COMMITLOG", "INDEXER", "JANITOR")}
    for arguments in (("topics", "list"), ("put", "t", "x"), ("pull", "t"), ("status",), ("health",)):
        result = run_here(*arguments, extra=away)
        assert result.code == 4, (arguments, result)
        assert result.errors.splitlines()[-1].startswith("error: ")
        assert "may or may not" not in result.errors


def test_config_show(tmp_path: Path) -> None:
    """`config show` has the effective settings with their sources: default, file, environment."""
    (tmp_path / "reput.toml").write_text("[janitor]\nretention_hours = 5\n")
    extra = {"REPUT_JANITOR_DELETE_WHEN": "05;06"}
    result = run_here("config", "show", "janitor", "--config", str(tmp_path / "reput.toml"), "--json", extra=extra)
    settings = {row["setting"]: (row["value"], row["source"]) for row in result.rows}
    assert settings["retention_hours"][0] == "5"
    assert settings["retention_hours"][1].endswith("reput.toml: [janitor] retention_hours")
    assert settings["delete_when"] == ("05;06", "environment REPUT_JANITOR_DELETE_WHEN")
    assert settings["port"] == ("7103", "default")
    assert settings["allow_insecure"] == (False, "default")
    lines = run_here("config", "show", "janitor").output.splitlines()
    (line,) = [line for line in lines if line.startswith("allow_insecure ")]
    assert line.split() == ["allow_insecure", "no", "default"]


@pytest.mark.parametrize("arguments", ["--help", "put --help", "topics list", "status", "version"])
def test_output_that_nobody_reads_at_all(running: Store, arguments: str) -> None:
    """A command whose reader has already ended does not fail and prints no error."""
    command = f"{' '.join(REPUT)} {arguments} | true"
    extra = running.client_environment()
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment(extra), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_output_that_nobody_reads(running: Store) -> None:
    """A reader that leaves early, as `head` does, makes no command fail."""
    command = f"{' '.join(REPUT)} pull lines --count 2500 --json | head -1"
    extra = running.client_environment()
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment(extra), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.linesep in done.stdout
