# SPDX-License-Identifier: Apache-2.0
"""Starts and stops in order have no warning; an outage has one at its begin, and a line at its end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import LIMIT_S
from tests.support.reput_up import FREE_PORTS, REPUT, environment, run_here, start
from tests.support.surroundings import free_port

pytestmark = pytest.mark.e2e

ORDINARY = frozenset({"debug", "info"})


def lines_of(log: Path) -> list[str]:
    """The lines of services in a log. The last line may be incomplete."""
    return [line for line in log.read_text().splitlines() if line.startswith("{")]


def rows_of(log: Path) -> list[dict[str, Any]]:
    """The lines of services in a log that is complete."""
    return list(map(json.loads, lines_of(log)))


def until_said(log: Path, text: str, after: int = 0) -> None:
    """Wait for a line with this text, after so many lines of services."""
    end = time.monotonic() + LIMIT_S
    while not any(text in line for line in lines_of(log)[after:]):
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def test_a_start_and_a_stop_are_quiet(tmp_path: Path) -> None:
    """All services start, take a message, stop, start again over the same store and stop: all lines are info."""
    for turn in range(2):
        log = tmp_path / f"log{turn}"
        with log.open("w") as errors:
            ports = [word for word in FREE_PORTS if word != "--no-delivery"]
            up = [*REPUT, "up", "--data-dir", str(tmp_path / "data"), *ports, "--delivery-port", "0", "--json"]
            with start(up, stdout=subprocess.PIPE, stderr=errors) as process:
                assert process.stdout is not None
                ready = json.loads(process.stdout.readline())
                targets = {name: ready[name] for name in ("commitlog", "indexer", "janitor", "delivery")}
                command = [
                    sys.executable, "-m", "services.gateway", "--port", "0", "--metrics-port", "0",
                    "--commitlog-target", targets["commitlog"], "--delivery-target", targets["delivery"],
                ]  # fmt: skip
                with start(command, stderr=errors) as gateway:
                    until_said(log, '"service": "gateway"')
                    extra = {f"REPUT_CLIENT_{name.upper()}_TARGET": target for name, target in targets.items()}
                    assert run_here("put", "orders", "x", extra=extra).code == 0
                    assert run_here("status", extra=extra).code == 0
                    gateway.send_signal(signal.SIGTERM)
                    assert gateway.wait(LIMIT_S) == 0
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=LIMIT_S)
                assert process.returncode in (0, 130)
        rows = rows_of(log)
        assert [row for row in rows if row["level"] not in ORDINARY] == []
        assert {row["service"] for row in rows} == {"commitlog", "indexer", "janitor", "delivery", "gateway"}
        starts = [row for row in rows if row["event"] == "serving"]
        assert all(row["version"] and "settings" in row for row in starts)
        [of_log] = [row for row in starts if row["service"] == "commitlog"]
        assert (of_log["data_dir"], of_log["role"]) == (os.path.realpath(tmp_path / "data"), "async_master")
        assert of_log["settings"]["segment_size_bytes"] == str(1 << 20)


def test_an_outage_is_a_line_at_its_begin_and_at_its_end(tmp_path: Path) -> None:
    """An Indexer whose CommitLog goes away says so once, and once that it is back."""
    port, log = free_port(), tmp_path / "log"
    of_log = [sys.executable, "-m", "services.commitlog", "--data-dir", str(tmp_path / "a"), "--port", str(port)]
    of_log += ["--metrics-port", "0"]
    index_port = free_port()
    of_index = [sys.executable, "-m", "services.indexer", "--data-dir", str(tmp_path / "b"), "--port", str(index_port)]
    of_index += ["--metrics-port", "0", "--commitlog-target", f"127.0.0.1:{port}", "--reconnect-ms-max", "200"]
    services = ("--commitlog", f"127.0.0.1:{port}", "--indexer", f"127.0.0.1:{index_port}")

    def is_indexed() -> bool:
        return bool(run_here(*services, "query", "key", "t", "k", "--json").output)

    def commitlog() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(of_log, stderr=subprocess.DEVNULL, env=environment())

    with log.open("w") as errors, start(of_index, stderr=errors) as index:
        first = commitlog()
        try:
            until_said(log, "serving")
            assert run_here(*services, "put", "t", "x", "--key", "k").code == 0
            end = time.monotonic() + LIMIT_S
            while not is_indexed():
                assert time.monotonic() < end, log.read_text()
            said_at_start = len(lines_of(log))
            first.terminate()
            first.wait(LIMIT_S)
            until_said(log, "failed, next attempt", said_at_start)
            time.sleep(3)  # many attempts
            first = commitlog()
            until_said(log, "works again after ", said_at_start)
        finally:
            first.terminate()
            first.wait(LIMIT_S)
            index.terminate()
            index.wait(LIMIT_S)
    later = rows_of(log)[said_at_start:]
    rows = [row for row in later if "failed, next attempt" in row["event"] or "works again" in row["event"]]
    names = {row["event"].split(" failed")[0].split(" works")[0] for row in rows}
    for name in names:
        own = [row for row in rows if row["event"].startswith(name)]
        assert [row["level"] for row in own][:2] == ["warning", "warning"], own
        assert len(own) <= 3, own  # the stop may be the begin of another outage
