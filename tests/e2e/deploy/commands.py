# SPDX-License-Identifier: Apache-2.0
"""The tools of the deployment tests, which `tools.sh` and `engine.sh` provide, and a way to run them."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/k8s/reput"
TOOLS = Path(os.environ.get("REPUT_DEPLOY_TOOLS", Path(tempfile.gettempdir()) / "reput-deploy-tools"))
SCHEMA_FILE = "{{.NormalizedKubernetesVersion}}{{.StrictSuffix}}/{{.ResourceKind}}{{.KindSuffix}}.json"
RUN_TIMEOUT_S = 900.0
HEALTHY_S = 240
Compose = Callable[..., subprocess.CompletedProcess[str]]


def tool(name: str) -> str:
    """Return the path of a tool, from PATH or from the folder of `tools.sh`. Skips the test when it is missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{TOOLS / 'bin'}")
    if found is None:
        pytest.skip(f"{name} is missing: tests/e2e/deploy/tools.sh provides it")
    return found


def schema_location() -> str:
    """Return the place of Kubernetes' schemas for kubeconform. Skips the test when they are missing."""
    if not (TOOLS / "schemas").is_dir():
        pytest.skip("Kubernetes' schemas are missing: tests/e2e/deploy/tools.sh provides them")
    return str(TOOLS / "schemas" / SCHEMA_FILE)


def compose_command() -> list[str]:
    """Return `docker compose`, which needs no engine to read files. Skips the test when it is missing."""
    docker = tool("docker")
    if run(docker, "compose", "version", must_succeed=False).returncode != 0:
        pytest.skip("docker compose is missing: tests/e2e/deploy/engine.sh provides it")
    return [docker, "compose"]


@contextlib.contextmanager
def composed(project: str, *files: str) -> Iterator[Compose]:
    """Run `docker compose` for a project of its own, which is built, up and healthy, and remove it in the end."""
    command = [*compose_command(), *(word for file in files for word in ("--file", file)), "--project-name", project]
    if run(tool("docker"), "version", must_succeed=False).returncode != 0:
        pytest.skip("no Docker engine answers: tests/e2e/deploy/engine.sh provides one")

    def in_project(*arguments: str, must_succeed: bool = True) -> subprocess.CompletedProcess[str]:
        return run(*command, *arguments, must_succeed=must_succeed)

    in_project("down", "--volumes", "--remove-orphans")
    try:
        in_project("build")
        in_project("up", "--detach", "--wait", "--wait-timeout", str(HEALTHY_S))
        yield in_project
    finally:
        in_project("down", "--volumes", "--remove-orphans", "--timeout", "10")


def start_all(compose: Compose) -> None:
    """Start all services of a project that do not run, and wait until all are healthy."""
    compose("up", "--detach", "--wait", "--no-build", "--wait-timeout", str(HEALTHY_S))


def run(*command: str | Path, must_succeed: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in the root of the repository. A failure shows the command's output, unless it may fail."""
    words = [str(word) for word in command]
    finished = subprocess.run(
        words, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if must_succeed:
        assert finished.returncode == 0, f"{' '.join(words)}\n{finished.stdout[-4000:]}\n{finished.stderr[-4000:]}"
    return finished
