# SPDX-License-Identifier: Apache-2.0
"""The demo as a process: its output, its exit codes, and that it leaves nothing running."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from demo.cluster import SERVICES, Cluster
from demo.load import LoadRecord
from demo.source import TOPIC
from tests.support.patience import LIMIT_S
from tests.support.surroundings import interrupt_by_default

ROOT = Path(__file__).resolve().parents[2]
FLIGHT_COUNT = 20_000


def command(*arguments: str) -> list[str]:
    """The demo's command line."""
    return [sys.executable, "-m", "demo", *arguments]


def processes_of(directory: Path) -> list[str]:
    """Command lines of running processes that name a directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(directory) in line:
            found.append(line)
    return found


@pytest.mark.demo
@pytest.mark.slow
def test_demo_answers_as_the_source_does(tmp_path: Path) -> None:
    """A run over some of the flights finds all answers equal, and its last line says so.

    It keeps the store, and leaves no process.
    """
    keep = tmp_path / "store"
    run = subprocess.run(
        command("--flights", str(FLIGHT_COUNT)),
        cwd=ROOT, env=os.environ | {"KEEP": str(keep)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert lines[-1] == f"DEMO OK appended={FLIGHT_COUNT} indexed={FLIGHT_COUNT} exported={FLIGHT_COUNT}"
    assert "DIFFERENT" not in run.stdout
    counts = re.search(r"(\d+) comparisons with the source table, (\d+) equal", run.stdout)
    assert counts is not None
    assert int(counts[1]) == int(counts[2]) > 120
    assert re.search(r"[abc] is back: it follows [abc]", run.stdout)
    assert re.search(r"flights that both shards hold: [\d,]+ at a, [\d,]+ at b", run.stdout)
    assert {"commitlog", "consumequeue", "index", "demo"} <= {path.name for path in keep.iterdir()}
    assert (keep / "demo" / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert processes_of(keep) == []


@pytest.mark.demo
@pytest.mark.slow
def test_a_machine_without_etcd_promotes_the_next_leader(tmp_path: Path) -> None:
    """Without etcd the chapter of the replicas needs nothing besides Reput.

    It shows the command that promotes a leader.
    """
    run = subprocess.run(
        command("--flights", "20000", "--no-spark"),
        cwd=ROOT, env=os.environ | {"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no etcd" in run.stdout
    assert re.search(r"\$ reput --commitlog \S+ promote", run.stdout)


@pytest.mark.demo
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("place", ["commitlog", "demo/replicas/c/commitlog"])
def test_interrupted_demo_leaves_nothing_running(tmp_path: Path, number: signal.Signals, place: str) -> None:
    """A demo that is stopped in the middle stops its services before it ends."""
    keep = tmp_path / "store"
    arguments = ("--keep", str(keep), "--no-spark", "--flights", "5000")
    with interrupt_by_default():
        demo = subprocess.Popen(command(*arguments), cwd=ROOT, stdout=subprocess.PIPE)
    with demo:
        deadline = time.monotonic() + LIMIT_S
        while not (keep / place).exists():
            assert demo.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert processes_of(keep)
        demo.send_signal(number)
        demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 130
    assert processes_of(keep) == []


@pytest.mark.demo
@pytest.mark.slow
def test_the_end_stays_open(tmp_path: Path) -> None:
    """With KEEP=1 the last line has the address of a console over the demo's store; Ctrl-C ends all of it."""
    arguments, variables = ("--no-spark", "--flights", "5000"), {"KEEP": "1", "TMPDIR": str(tmp_path)}
    with interrupt_by_default():
        demo = subprocess.Popen(
            command(*arguments), cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | variables
        )
    with demo:
        assert demo.stdout is not None
        url = next(found[0] for line in demo.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+(?= until)", line)))
        with urllib.request.urlopen(f"{url}/topics.json", timeout=LIMIT_S) as answer:
            topics = json.load(answer)
        assert [row["message_count"] for row in topics["rows"] if row["name"] == TOPIC] == [5000]
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.demo
@pytest.mark.slow
def test_checks_run_alone_and_find_a_difference(tmp_path: Path) -> None:
    """The checks run alone: they load services that run elsewhere, and ask them.

    They ask again later, and fail on a single wrong offset.
    """
    record = tmp_path / "load.parquet"
    with Cluster(tmp_path / "store", tmp_path / "logs") as cluster:
        targets = [part for service in SERVICES for part in (f"--{service}", cluster.target(service))]

        def check(*arguments: str) -> subprocess.CompletedProcess[str]:
            line = [sys.executable, "-m", "demo.checks", *targets, "--record", str(record), "--flights", "5000"]
            return subprocess.run([*line, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

        assert check().returncode == 2
        loaded = check("--load")
        assert loaded.returncode == 0, loaded.stdout + loaded.stderr
        assert check().returncode == 0
        again = check("--load")
        assert (again.returncode, "already has messages" in again.stdout) == (1, True)
        wrong = LoadRecord.read(record)
        offsets = wrong.queue_offsets
        offsets[10], offsets[14] = offsets[14], offsets[10]
        wrong.save(record)
        different = check()
        assert different.returncode == 1
        assert "DIFFERENT  pull all of queue 2" in different.stdout


@pytest.mark.parametrize("is_file", [True, False])
def test_keep_must_be_empty(tmp_path: Path, is_file: bool) -> None:
    """The demo does not write into a directory that is not empty, and prints a single line about it."""
    keep = tmp_path / "store"
    if is_file:
        keep.write_text("mine")
    else:
        keep.mkdir()
        (keep / "file").write_text("mine")
    run = subprocess.run(command("--keep", str(keep)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "is not an empty directory" in " ".join(run.stdout.split())
    assert "Traceback" not in run.stderr
