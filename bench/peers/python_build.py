# SPDX-License-Identifier: Apache-2.0
"""The environment of the other systems' clients for Python: build/bench/python, apart from Reput's own environment."""

import fcntl
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import PeerMissing

SOURCES = Path(__file__).parent / "python"
REQUIREMENTS = SOURCES / "requirements.txt"
BUILD = Path(__file__).resolve().parents[2] / "build" / "bench" / "python"
NO_REGISTRY = ("Connection", "Temporary failure in name resolution", "No matching distribution", "Max retries")
"""The messages of pip when the registry does not answer or has no package for this machine."""


def build() -> None:
    """Make the environment, or keep it if it has these requirements. Raises PeerMissing without a registry."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made_of = BUILD / "made_of"
        wanted = REQUIREMENTS.read_text()
        if made_of.exists() and made_of.read_text() == wanted:
            return
        _do([sys.executable, "-m", "venv", "--clear", str(BUILD / "env")])
        _do([str(BUILD / "env/bin/pip"), "install", "--quiet", "--only-binary", ":all:", "-r", str(REQUIREMENTS)])
        made_of.write_text(wanted)


def release(package: str) -> str:
    """Return the pinned release of a package, such as "aiokafka"."""
    found = re.search(rf"^{re.escape(package)}==(\S+)$", REQUIREMENTS.read_text(), re.MULTILINE)
    assert found is not None, package
    return found[1]


def packages() -> Path:
    """Return the folder of the environment's packages."""
    return next((BUILD / "env/lib").glob("python*/site-packages"))


def command(program: str) -> Sequence[str]:
    """Return the command line of a load generator, without its arguments."""
    return (str(BUILD / "env/bin/python"), str(SOURCES / program))


def _do(words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        error = f"{' '.join(words)} failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        raise PeerMissing(error) if any(text in error for text in NO_REGISTRY) else RuntimeError(error)
