# SPDX-License-Identifier: Apache-2.0
"""Drivers: programs on the official clients, which carry out a line of JSON.

Everything that they need is in build/gateway.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "drivers"
BUILD = Path(__file__).parents[2] / "build" / "gateway"
ANSWER_S = 180.0

PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
NODE_CLIENT = "rocketmq-client-nodejs@1.0.8"


class Missing(Exception):
    """This machine does not have the tool that builds a driver."""


class ClientError(AssertionError):
    """The client met an error."""


@dataclass(frozen=True)
class Command:
    """The command that starts a driver."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    place_of_keys: str = "guarded"
    """The gateway for the feature of access keys."""
    lacks: Collection[str] = ()
    """Features that the client lacks, as parts of their names."""


def _run(*words: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _need(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        raise Missing(tool)
    return found


def python() -> Command:
    """Build the client for Python, in a separate environment, because it needs other versions of gRPC than ours."""
    home = BUILD / "python"
    if not (home / "ready").exists():
        _run(sys.executable, "-m", "venv", home)
        _run(home / "bin/pip", "install", "-q", PYTHON_CLIENT)
        (home / "ready").touch()
    return Command([str(home / "bin/python"), str(HERE / "driver.py")])


def node() -> Command:
    """The client for Node.js."""
    home = BUILD / "node"
    _need("node")
    if not (home / "ready").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text('{"private": true}')
        _run(_need("npm"), "install", "--silent", NODE_CLIENT, cwd=home)
        (home / "ready").touch()
    return Command(["node", str(HERE / "driver.mjs")], {"NODE_CLIENT": str(home)})


def java() -> Command:
    """The client for Java."""
    home = BUILD / "java"
    _need("java")
    _run(_need("mvn"), "-q", "-B", f"-Ddriver.build={home}", "package", cwd=HERE / "java")
    logs = f"-Drocketmq.log.root={home / 'logs'}"  # else they go to the user's home
    return Command(["java", logs, "-cp", f"{home / 'gateway-driver-1.jar'}:{home / 'lib'}/*", "driver.Driver"])


def go() -> Command:
    """The client for Go."""
    built = BUILD / "go" / "driver"
    _run(_need("go"), "build", "-o", built, ".", cwd=HERE / "go")
    logs = {"rocketmq.client.logRoot": str(BUILD / "go" / "logs")}
    return Command([str(built)], logs)


def rust() -> Command:
    """Build the client for Rust, which has no push consumers and no recall, and no way yet to turn TLS on."""
    home = BUILD / "rust"
    _run(_need("cargo"), "build", "--quiet", "--locked", "--target-dir", home, cwd=HERE / "rust")
    lacks = ("PushConsumer", "dead letter", "change invisible", "recall", "TLS")
    return Command([str(home / "debug" / "driver")], lacks=lacks, place_of_keys="keys")


LANGUAGES: Mapping[str, Callable[[], Command]] = {
    "python": python,
    "node": node,
    "java": java,
    "go": go,
    "rust": rust,
}


class Driver:
    """A driver that runs."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Let the driver do something, and return the result.

        Raises ClientError, and AssertionError if the driver has ended.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        async with asyncio.timeout(ANSWER_S):
            while True:
                line = await self._child.stdout.readline()
                assert line, "the driver has ended"
                if line.startswith(b"{"):  # libraries print, too
                    break
        answer = json.loads(line)
        if "ok" not in answer:
            raise ClientError(f"{do}: {answer['error']}")
        return answer["ok"]


@contextlib.asynccontextmanager
async def running(command: Command, authorities: Path, errors: Path) -> AsyncIterator[Driver]:
    """Run a driver that trusts these authorities. Its output beside its answers goes to a file."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    trust = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authorities)}
    with errors.open("ab") as file:
        child = await asyncio.create_subprocess_exec(
            *command.words,
            env={**kept, **trust, **command.environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            limit=1 << 24,
        )
        try:
            yield Driver(child)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
