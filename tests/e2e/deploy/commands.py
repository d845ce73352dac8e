# SPDX-License-Identifier: Apache-2.0
"""The tools of the deployment tests, which `tools.sh` and `engine.sh` provide, and a way to run them."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/k8s/reput"
TOOLS = Path(os.environ.get("REPUT_DEPLOY_TOOLS", Path(tempfile.gettempdir()) / "reput-deploy-tools"))
SCHEMA_FILE = "{{.NormalizedKubernetesVersion}}{{.StrictSuffix}}/{{.ResourceKind}}{{.KindSuffix}}.json"
RUN_TIMEOUT_S = 900.0


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


def run(*command: str | Path, must_succeed: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in the root of the repository. A failure shows the command's output, unless it may fail."""
    words = [str(word) for word in command]
    finished = subprocess.run(
        words, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if must_succeed:
        assert finished.returncode == 0, f"{' '.join(words)}\n{finished.stdout[-4000:]}\n{finished.stderr[-4000:]}"
    return finished
