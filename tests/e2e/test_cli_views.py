# SPDX-License-Identifier: Apache-2.0
"""The views of `reput` on a running store: messages by a condition, topics with their sizes, and `top`."""

import json
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cli.output.moments import time_text
from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, Store, environment, run_here, start, store

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store for all tests. Each test uses its own topics."""
    with store(tmp_path_factory.mktemp("store")) as running:
        yield running


def until_indexed(running: Store, topic: str, count: int) -> None:
    """Wait until the topic has this many indexed messages."""
    end = time.monotonic() + LIMIT_S
    while True:
        rows = running.json("topics", "list", "--no-times")
        if sum(row["message_count"] for row in rows if row["name"] == topic) >= count:
            return
        assert time.monotonic() < end, rows


def rates_of_a_still_store(running: Store) -> dict[str, Any]:
    """Measure until nothing is appended meanwhile: a committed offset comes into the log a little later."""
    end = time.monotonic() + LIMIT_S
    while True:
        (found,) = running.json("top", "0.2", "--once")
        if found["commitlog"]["messages_per_s"] == found["indexer"]["records_per_s"] == 0.0:
            return dict(found)
        assert time.monotonic() < end, found


def test_where(running: Store) -> None:
    """Each way to read accepts a condition of properties, and an invalid condition is refused with its position."""
    for price in (5, 15, 25):
        running.json("put", "priced", str(price), "--key", "k", "--property", f"price={price}", "--queue", "0")
    until_indexed(running, "priced", 3)
    for question in ("pull priced", "tail priced", "query key priced k", "query time priced"):
        found = running.json(*question.split(), "--where", "price > 10")
        assert sorted(message["body"] for message in found) == ["15", "25"], question
    result = running.run("pull", "priced", "--where", "price > 10 price < 20")
    assert result.code == 5
    assert "at character 12: 'price' is not expected here" in result.output + result.errors
    assert running.run("query", "time", "priced", "--where", "price > 99").code == 3


def test_topics_with_what_they_have(running: Store) -> None:
    """A topic is listed with its messages over all queues, the oldest and the newest time.

    With --no-times the times are missing, and without an Indexer all three.
    """
    results = [running.json("put", "counted", "x", "--queue", str(queue))[0] for queue in (0, 1, 1)]
    until_indexed(running, "counted", 3)

    def row(*arguments: str) -> dict[str, object]:
        (found,) = [row for row in running.json(*arguments, "topics", "list") if row["name"] == "counted"]
        return {name: found[name] for name in ("message_count", "first_store_time", "last_store_time")}

    times = [time_text(result["store_time_ms"]) for result in results]
    assert row() == {"message_count": 3, "first_store_time": times[0], "last_store_time": times[2]}
    (fast,) = [row for row in running.json("topics", "list", "--no-times") if row["name"] == "counted"]
    assert (fast["message_count"], fast["last_store_time"]) == (3, None)
    alone = running.run("--indexer", "127.0.0.1:1", "topics", "list")
    assert alone.code == 0
    assert "counted" in alone.output
    assert alone.errors.startswith("warning: messages are not counted: nobody answers at 127.0.0.1:1")


def test_top_once(running: Store) -> None:
    """Two measurements give rates. The output is a page as text, and a single object as JSON."""
    running.run("put", "flow", "--queue", "0", standard_input="a\nb\nc\n")
    until_indexed(running, "flow", 3)
    running.json("groups", "commit", "flowing", "flow", "--queue", "0", "--offset", "1")
    found = rates_of_a_still_store(running)
    assert found["is_healthy"] is True
    (topic,) = [row for row in found["topics"] if row["topic"] == "flow"]
    assert topic == {
        "topic": "flow", "in_per_s": 0.0, "out_per_s": 0.0, "message_count": 3, "queue_count": 1, "lag": 2
    }  # fmt: skip
    assert {"group": "flowing", "topic": "flow", "out_per_s": 0.0, "lag": 2, "left_s": None} in found["groups"]
    assert found["commitlog"]["answer_ms"] > 0
    assert [disk["service"] for disk in found["disks"]] == ["commitlog", "indexer"]
    lines = running.run("top", "0.2", "--once").output.splitlines()
    assert lines[0] == "healthy"
    assert [line.split()[:4] for line in lines if line.startswith("flow ")] == [["flow", "0", "0", "3"]]


def test_top_for_scripts(running: Store) -> None:
    """`reput top --json` prints an object for each measurement, with the rates since the last, until an interrupt."""
    command = [*REPUT, "top", "0.5", "--json"]
    with start(command, running.client_environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["commitlog"]["messages_per_s"] is None
        running.run("put", "scripted", "--queue", "0", standard_input="x\n" * 50)
        came = 0.0
        while not came:
            rows = json.loads(process.stdout.readline())["topics"]
            came = sum(row["in_per_s"] for row in rows if row["topic"] == "scripted")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130


def test_top_at_a_terminal(running: Store) -> None:
    """`reput top` uses its own screen, and q restores the screen before it and the terminal's settings."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    extra = {**running.client_environment(), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    command = [*REPUT, "top", "60"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(extra)) as process:
        seen = b""
        while b"healthy" not in seen or b"message count" not in seen:
            seen += os.read(ours, 1 << 16)
        os.write(ours, b"xq")
        assert process.wait(LIMIT_S) == 0
        seen += os.read(ours, 1 << 16)
    assert seen.index(b"\x1b[?1049h") < seen.index(b"healthy") < seen.index(b"\x1b[?1049l")
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_top_without_services() -> None:
    """Without services `reput top` names the missing services, and ends with the exit code for UNAVAILABLE."""
    away = {f"REPUT_CLIENT_{name}_TARGET": "127.0.0.1:1" for name in ("COMMITLOG", "INDEXER", "JANITOR")}
    result = run_here("top", "0.1", "--once", extra=away)
    assert (result.code, result.output.startswith("not well: 3 problems\n")) == (4, True)
    assert result.errors == "error: UNAVAILABLE: no answer from commitlog, indexer, janitor\n"
