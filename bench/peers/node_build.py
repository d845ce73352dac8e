# SPDX-License-Identifier: Apache-2.0
"""The common part of the systems with clients for Node.js: their packages, and Reput's own client, built here."""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import PeerMissing

SOURCES = Path(__file__).parent / "node"
CLIENT = Path(__file__).resolve().parents[2] / "clients" / "node"
BUILD = Path(__file__).resolve().parents[2] / "build" / "bench" / "node"


def build() -> None:
    """Fetch and build. Raises PeerMissing without npm, or when the registry does not answer."""
    if shutil.which("npm") is None:
        raise PeerMissing("npm not found: install Node.js 20")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in (CLIENT, SOURCES):
            _do(["npm", "ci", "--no-audit", "--no-fund", "--silent"], folder)
        _do(["npm", "run", "--silent", "build"], CLIENT)


def release(package: str) -> str:
    """Return the release of a package of the load generators, such as "@nats-io/jetstream"."""
    dependencies = json.loads((SOURCES / "package.json").read_text())["dependencies"]
    return str(dependencies[package])


def node_version() -> str:
    """Return the version of Node.js, such as v22.14.0."""
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def command(program: str) -> Sequence[str]:
    """Return the command line of a load generator, without its arguments."""
    return ("node", str(SOURCES / program))


def _do(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        error = f"{' '.join(command)} failed in {folder}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        raise PeerMissing(error) if "ENOTFOUND" in error or "ETIMEDOUT" in error else RuntimeError(error)
