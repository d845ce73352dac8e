# SPDX-License-Identifier: Apache-2.0
"""The drivers of the languages: how each is built, and a running driver, a line of JSON in and a line of JSON out."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients import cases

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"
BUILD = ROOT / "build" / "clients"
ANSWER_TIMEOUT_S = 180.0
ANSWER_SIZE_BYTES_MAX = 64 << 20
WORDS_SIZE_BYTES = 4_000


class Missing(Exception):
    """The machine lacks a tool that a language needs."""


def python() -> Sequence[str]:
    """The Python client of this environment."""
    return [sys.executable, "-m", "tests.clients.driver"]


def go() -> Sequence[str]:
    """Build the driver with the Go toolchain."""
    _need("go")
    program = BUILD / "go" / "conformance"
    _do(["go", "build", "-o", str(program), "./cmd/conformance"], CLIENTS / "go")
    return [str(program)]


def java() -> Sequence[str]:
    """Build the driver with Maven."""
    _need("mvn")
    folder = CLIENTS / "java"
    _do(["mvn", "--quiet", "--batch-mode", "-DskipTests", "package", "dependency:copy-dependencies"], folder)
    path = os.pathsep.join(str(folder / "target" / part) for part in ("classes", "test-classes", "lib/*"))
    return ["java", "-cp", path, "reput.client.conformance.Driver"]


def node() -> Sequence[str]:
    """Build the driver with npm."""
    _need("npm")
    folder = CLIENTS / "node"
    _do(["npm", "ci", "--no-audit", "--no-fund", "--silent"], folder)
    _do(["npm", "run", "--silent", "build"], folder)
    return ["node", str(folder / "conformance" / "driver.mjs")]


LANGUAGES: Mapping[str, Callable[[], Sequence[str]]] = dict(zip(cases.LANGUAGES, (python, go, java, node), strict=True))
"""Functions that build a driver, and return the command that starts it. They raise Missing."""


def _need(program: str) -> None:
    if shutil.which(program) is None:
        raise Missing(program)


def _do(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


class Driver:
    """A running driver."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._words = b""

    async def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request, and return the driver's answer.

        Raises AssertionError with its last output if it ends or hangs.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(request).encode() + b"\n")
        try:
            await self._child.stdin.drain()
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                line = await self._child.stdout.readline()
            answer: Mapping[str, Any] = json.loads(line)
        except (TimeoutError, ValueError, OSError) as error:
            raise AssertionError(f"{error!r} in place of an answer; it said\n{self._words.decode()}") from error
        return answer

    async def listen(self) -> None:
        """Keep the end of its output beside its answers."""
        assert self._child.stderr is not None
        while words := await self._child.stderr.read(WORDS_SIZE_BYTES):
            self._words = (self._words + words)[-WORDS_SIZE_BYTES:]


@contextlib.asynccontextmanager
async def running(command: Sequence[str]) -> AsyncIterator[Driver]:
    """A driver for a block, without settings in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=ANSWER_SIZE_BYTES_MAX, cwd=ROOT, env=environment
    )
    driver = Driver(child)
    listening = asyncio.create_task(driver.listen())
    try:
        yield driver
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            async with asyncio.timeout(10):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
        await listening
