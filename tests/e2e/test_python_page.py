# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/python.md run as written, and print the output below them. Those of Spark are in tests/spark."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forks import REPOSITORY
from tests.support.patience import LIMIT_S
from tests.support.reput_up import WITH_GATEWAY, Store, environment, store

pytestmark = pytest.mark.e2e

PAGE = (REPOSITORY / "docs/python.md").read_text()
PROGRAMS = ("Send, find, share", "Frames", "FastStream", "Outbox")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("page"), *WITH_GATEWAY) as one:
        yield one


def blocks_of(section: str, language: str) -> list[str]:
    """The blocks of a section of the page."""
    (text,) = re.findall(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(command: list[str | Path], directory: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command, env=variables, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize("section", PROGRAMS)
def test_a_program_prints_what_the_page_says(running: Store, tmp_path: Path, section: str) -> None:
    """Each program runs as it is, except for the address, beside a store, and prints the block below it."""
    (code,), (printed,) = blocks_of(section, "python"), blocks_of(section, "text")
    (tmp_path / "program.py").write_text(code.replace("localhost:8081", running.door))
    done = run([sys.executable, "program.py"], tmp_path, environment(running.client_environment()))
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_test_of_the_page(tmp_path: Path) -> None:
    """The test passes in a project of its own, with the fixtures of pytest-reput."""
    (code,) = blocks_of("Tests", "python")
    (tmp_path / "test_page.py").write_text(code)
    (tmp_path / "pytest.ini").touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REPUT_"))}
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path, kept)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_tasks_of_the_page(running: Store, tmp_path: Path) -> None:
    """A worker of Celery runs the tasks of the page, and the caller prints their results."""
    (code,), (printed,) = blocks_of("Tasks", "python"), blocks_of("Tasks", "text")
    (tmp_path / "tasks.py").write_text(code)
    variables = environment(running.client_environment())
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "1"],
            cwd=tmp_path, env=variables, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            done = run([sys.executable, "tasks.py"], tmp_path, variables)
        finally:
            worker.terminate()
            worker.wait(LIMIT_S)
    assert (done.returncode, done.stdout) == (0, printed), (done.stderr, (tmp_path / "log").read_text())
