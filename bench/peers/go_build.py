# SPDX-License-Identifier: Apache-2.0
"""The common part of the peers with Go clients: a single Go build for all of them, including the NATS server.

The build goes to build/bench/go and is made anew when the module files or the sources, Reput's own client among them,
differ from the files that it was made of.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from bench.peers.peer import PeerMissing

SOURCES = Path(__file__).parent / "go"
CLIENT = Path(__file__).resolve().parents[2] / "clients" / "go"
BUILD = Path(__file__).resolve().parents[2] / "build" / "bench" / "go"
NATS_SERVER = "github.com/nats-io/nats-server/v2"
PACKAGES = ("./cmd/natsload", "./cmd/redisload", "./cmd/reputload", NATS_SERVER)
NOT_THIS_MACHINE = ("go.mod requires go", "toolchain not available", "dial tcp", "no such host", "Forbidden")
"""The messages of `go build` when Go is too old, or when the module proxy does not answer."""


def build() -> None:
    """Compile and fetch the missing parts.

    Raises PeerMissing without a Go that is new enough, or when the module proxy does not answer.
    """
    if shutil.which("go") is None:
        raise PeerMissing(f"go not found: install Go {_directive('go')}")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made_of = BUILD / "made_of"
        digest = _digest()
        if made_of.exists() and made_of.read_text() == digest:
            return
        done = subprocess.run(
            ["go", "build", "-o", f"{BUILD}/", *PACKAGES], cwd=SOURCES, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            error = f"Go can't build {SOURCES}:\n{done.stderr[-3000:]}"
            raise PeerMissing(error) if any(words in done.stderr for words in NOT_THIS_MACHINE) else RuntimeError(error)
        made_of.write_text(digest)


def release(module: str) -> str:
    """Return a release that go.mod names, such as that of "github.com/nats-io/nats.go"."""
    return _directive(module)


def go_version() -> str:
    """Return the toolchain's version, such as go1.26.8."""
    done = subprocess.run(["go", "env", "GOVERSION"], cwd=SOURCES, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def program(name: str) -> str:
    """Return the path of a built program."""
    return str(BUILD / name)


def _directive(word: str) -> str:
    found = re.search(rf"^\s*{re.escape(word)} (\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, word
    return found[1]


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in (SOURCES, CLIENT) for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(CLIENT.parents[1])).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
