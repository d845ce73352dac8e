# SPDX-License-Identifier: Apache-2.0
"""Kombu's own tests of transports and Celery's integration tests, fetched in the locked versions, on this transport."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from pytest_reput.processes import ProcessReput

from tests.support.surroundings import free_port

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(3600)]

LIMIT_S = 3000.0
TOLD = r"(FAILED|ERROR|SKIPPED|XFAIL|XPASS|RERUN|=* ?\d+ (passed|failed))"
TESTS = Path(__file__).parent
PART_COUNT = 4
"""Processes of Celery's tests at the same time: most of their time they wait."""
NEEDS = ("redis", "pydantic", "pytest-rerunfailures")
"""Packages that Celery's tests import, beyond the packages of this environment."""

KOMBU_LEFT_OUT = {
    "test_Priority and test_publish_consume": "expects that a single drain_events delivers three messages",
    "test_Priority and test_publish_requeue_consume": "the same",
    "test_Priority and test_simple_buffer_publish_consume": "a queue of a process has no priorities",
    "test_failover_switches_to_alternate_url": "looks at the port that Kombu parses; the transport parses its URL",
}
CELERY_FILES = ("test_tasks.py", "test_inspect.py", "test_canvas.py", "test_group_chains.py")
CELERY_LEFT_OUT = {
    "test_inspect.py::test_Inspect::test_scheduled": "expects a task with an eta in the worker; the store holds it",
}


def run(folder: Path, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of Kombu and Celery, beside an environment with our packages and the packages of Celery's tests."""
    folder = tmp_path_factory.mktemp("conformance")
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv/bin/python")
    wanted = [f"{name}=={version(name)}" for name in ("kombu", "celery")]
    for command in (
        [python, "-m", "pip", "install", "-q", *NEEDS],
        [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder), *wanted],
    ):
        done = run(folder, command)
        assert done.returncode == 0, done.stderr
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    site = next((folder / "venv/lib").glob("python*/site-packages"))
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (site / "zz_ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    return folder


@pytest.fixture
def redis_ports() -> Iterator[str]:
    """A Redis for the results of tasks, for each process of Celery's tests."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not on PATH: Celery's tests keep their results there")
    ports = [free_port() for _ in range(PART_COUNT)]
    commands = [[server, "--port", str(port), "--save", ""] for port in ports]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    yield ",".join(map(str, ports))
    for process in processes:
        process.kill()
        process.wait(60)


def told(done: subprocess.CompletedProcess[str]) -> str:
    """Return and print the tests of a run of pytest that did not simply pass, and its last line."""
    lines = [line for line in done.stdout.splitlines() if re.match(TOLD, line)]
    print("\n".join(lines[-60:]) or done.stdout[-2000:] + done.stderr[-2000:])
    return "\n".join(lines)


def test_kombus_transport_tests(sources: Path, reput_processes: ProcessReput) -> None:
    """All classes of Kombu's `t/integration/common.py`."""
    assert reput_processes.is_running
    folder = next(sources.glob("kombu-*/"))
    shutil.copy(TESTS / "kombu_cases.py", folder / "t/integration/test_reput.py")
    skipped = " or ".join(f"({name})" for name in KOMBU_LEFT_OUT)
    command = [
        str(sources / "venv/bin/python"), "-m", "pytest", "-q", "-rfEsxXR", "-o", "addopts=", "-W", "ignore",
        "t/integration/test_reput.py", "-k", f"not ({skipped})",
    ]  # fmt: skip
    done = run(folder, command)
    assert done.returncode == 0, told(done)
    told(done)


@pytest.mark.parametrize("name", CELERY_FILES)
def test_celerys_integration_tests(name: str, sources: Path, reput_processes: ProcessReput, redis_ports: str) -> None:
    """Celery's tests of a file, with this transport as its broker and Redis for results."""
    assert reput_processes.is_running
    folder = next(sources.glob("celery-*/"))
    shutil.copy(TESTS / "celery_parts.py", folder)
    command = [
        str(sources / "venv/bin/python"), "-m", "pytest", "-q", "-rfEsxXR", "-o", "addopts=", "-W", "ignore",
        "-p", "celery_parts", "-p", "celery.contrib.pytest", "-p", "kombu_reput", f"t/integration/{name}",
        "-n", str(PART_COUNT),
        *(part for left_out in CELERY_LEFT_OUT for part in ("--deselect", f"t/integration/{left_out}")),
    ]  # fmt: skip
    done = run(folder, command, REDIS_PORTS=redis_ports, WORKER_LOGLEVEL="INFO")
    assert done.returncode == 0, told(done)
    told(done)
