# SPDX-License-Identifier: Apache-2.0
"""Celery's worker as a process, and processes that are killed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_reput.processes import ProcessReput

TESTS = Path(__file__).parent
EXAMPLES = TESTS.parent / "examples"
LIMIT_S = 240.0
TASK_COUNT = int(os.environ.get("TASKS", "1000"))
KILL_COUNT = int(os.environ.get("KILLS", "50"))
STORE_KILLS = KILL_COUNT * 3 // 10


@contextlib.contextmanager
def worker(app: str, folder: Path, log: Path, *options: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker with its own pool in a group of processes, which is killed at the end."""
    command = [sys.executable, "-m", "celery", "-A", app, "worker", "-l", "INFO", *options]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **variables}, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a worker and its pool."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(LIMIT_S)


def celery(app: str, folder: Path, *command: str) -> str:
    """Run a command of Celery and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", app, *command],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_the_example_with_a_worker(pool: str, tmp_path: Path, reput_processes: ProcessReput) -> None:
    """Tasks, chains, countdowns, retries and results; remote control sees the worker, which stops in order."""
    assert reput_processes.is_running
    with worker("tasks", EXAMPLES, tmp_path / "log", "-P", pool, "-c", "2", "-n", f"{pool}@host") as process:
        done = subprocess.run(
            [sys.executable, "tasks.py"], cwd=EXAMPLES, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        told = (tmp_path / "log").read_text()
        assert done.returncode == 0, done.stderr + told
        for line in ("3 + 4 = 7", "(3 + 4) + 5 = 12", "after two seconds: 2", "example.org in attempt 2"):
            assert line in done.stdout
        answer = celery("tasks", EXAMPLES, "inspect", "ping", "-t", "20", "-d", f"{pool}@host")
        assert f"{pool}@host: OK" in answer
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0, (tmp_path / "log").read_text()


def publish(count: int, seed: int) -> set[str]:
    """Publish two fifths with an eta, a fifth that fails once, and chains of two. Return their effects."""
    from celery import chain
    from killed_tasks import at_time, in_second_attempt, link

    chance, wanted, policy = random.Random(seed), set(), {"max_retries": 100, "interval_max": 1}
    for number in range(count * 2 // 5):
        due = datetime.now(UTC) + timedelta(seconds=chance.uniform(0, count * 0.3))
        at_time.apply_async((f"eta-{number}", due.timestamp()), eta=due, retry_policy=policy)
        wanted.add(f"eta-{number}")
        if number % 2 == 0:
            in_second_attempt.apply_async((f"retry-{number}",), retry_policy=policy)
            first, second = link.si(f"first-{number}"), link.si(f"second-{number}")
            chain(first, second).apply_async(retry_policy=policy)
            wanted |= {f"{kind}-{number}" for kind in ("try", "retry", "first", "second")}
    return wanted


def wait_for_lines(file: Path, count: int) -> None:
    """Wait until a file has so many lines, so that each kill meets work in progress."""
    end_s = time.monotonic() + LIMIT_S
    while len(file.read_text().splitlines()) < count:
        assert time.monotonic() < end_s, f"{file} does not grow to {count} lines"
        time.sleep(0.1)


def test_only_a_kill_explains_a_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that ran twice is explained by a kill of its worker or of the store at that time, or by its cause."""
    monkeypatch.syspath_prepend(str(TESTS))
    from killed_tasks import Kill, repetitions, runs_in

    runs = runs_in(["link-1 100.0 0 w1 0", "link-1 110.0 0 w2 1"])
    for kills, part in (
        ([], ""),
        ([Kill("w2", 100.1, 101.0)], ""),
        ([Kill("w1", 107.0, 108.0)], ""),
        ([Kill("w1", 110.1, 111.0)], ""),
        ([Kill("store", 80.0, 90.0)], ""),
        ([Kill("w1", 100.1, 101.0)], "w1 was killed 0.10 s after"),
        ([Kill("store", 99.0, 106.0), Kill("w1", 107.0, 108.0)], "store away for 7.0 s"),
        ([Kill("store", 99.0, 106.0)], "killed 1.00 s before its effect"),
    ):
        ((run, reason),) = repetitions(runs, kills)
        assert run.worker == "w2"
        assert part in reason if part else not reason
    lines = ["first-1 1 0 w1 0", "first-1 2 0 w2 1", "second-1 3 0 w1 0", "second-1 4 0 w1 0"]
    assert [bool(reason) for _, reason in repetitions(runs_in(lines), [])] == [False, True]


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_no_task_is_lost_when_workers_and_the_store_are_killed(
    tmp_path: Path, reput_processes: ProcessReput, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each effect happens at least once, none is early, and each repetition is that of a task that was interrupted."""
    effects = tmp_path / "effects"
    effects.touch()
    monkeypatch.setenv("REPUT_EFFECTS", str(effects))
    monkeypatch.syspath_prepend(str(TESTS))
    from killed_tasks import Kill, repetitions, runs_in

    wanted = publish(TASK_COUNT, seed=44)
    chance, kills = random.Random(44), []
    kinds = ["store"] * STORE_KILLS + ["worker"] * (KILL_COUNT - STORE_KILLS)
    chance.shuffle(kinds)
    began_s = time.monotonic()
    with contextlib.ExitStack() as running:

        def start(number: int) -> "tuple[str, subprocess.Popen[bytes]]":
            name = f"w{number}@host"
            return name, running.enter_context(worker("killed_tasks", TESTS, tmp_path / "log", "-c", "2", "-n", name))

        workers = [start(0), start(1)]
        for number, kind in enumerate(kinds, start=2):
            wait_for_lines(effects, len(wanted) * 3 // 4 * (number - 1) // KILL_COUNT)
            time.sleep(chance.uniform(0, 2))
            what, process = ("store", None) if kind == "store" else workers.pop(0)
            at_s = time.time()
            if process is None:
                reput_processes.restart(crash=True)
            else:
                kill(process)
                workers.append(start(number))
            kills.append(Kill(what, at_s, time.time()))
        end_s = time.monotonic() + LIMIT_S
        while missing := wanted - {line.split()[0] for line in effects.read_text().splitlines()}:
            assert time.monotonic() < end_s, f"{len(missing)} effects are lost: {sorted(missing)[:5]}"
            time.sleep(0.5)
    runs = runs_in(effects.read_text().splitlines())
    early = [run for run in runs if run.at_s < run.due_s]
    repeated = list(repetitions(runs, kills))
    with capsys.disabled():
        print(
            f"\n{TASK_COUNT} tasks, {len(wanted)} effects, {KILL_COUNT} kills ({STORE_KILLS} of the store) in "
            f"{time.monotonic() - began_s:.0f} s: {len(repeated)} repetitions, {len(early)} early"
        )
        for run, reason in repeated:
            print(f"{run.name} again in {run.worker}: {reason or 'no kill explains it'}")
    assert {run.name for run in runs} == wanted
    assert not early
    assert all(reason for _, reason in repeated)
