# SPDX-License-Identifier: Apache-2.0
"""The clients of other languages: built or fetched once, below build/conformance."""

import asyncio
import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "conformance"
H2SPEC, GRPCURL = "github.com/summerwind/h2spec/cmd/h2spec", "github.com/fullstorydev/grpcurl/cmd/grpcurl"
GO_CLIENT = "google.golang.org/grpc/interop/client"
JAVA_CLIENT = "io.grpc.testing.integration.TestServiceClient"
CALL_TIMEOUT_S = 300


@functools.cache
def go_tool(package: str) -> str:
    """Path of a program in Go, at the release that go/go.mod names."""
    _needs("go")
    path = BUILD / "go" / package.rpartition("/")[2]
    _do(["go", "build", "-o", str(path), package], HERE / "go")
    return str(path)


@functools.cache
def java_client() -> list[str]:
    """Command line of gRPC's interoperability client in Java, at the release that java/pom.xml names."""
    _needs("mvn")
    libraries = BUILD / "java"
    _do(["mvn", "--quiet", "--batch-mode", "package", f"-Dlibraries={libraries}"], HERE / "java")
    return ["java", "-cp", f"{libraries}{os.sep}*", JAVA_CLIENT]


@functools.cache
def node_client() -> list[str]:
    """Command line of the calls in Node, with the packages that node/package-lock.json names."""
    _needs("npm")
    folder = BUILD / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*(HERE / "node").iterdir(), HERE / "testing.proto"]:
        shutil.copy(path, folder)
    _do(["npm", "ci", "--no-audit", "--no-fund", "--silent"], folder)
    return ["node", str(folder / "calls.mjs")]


async def output_of(command: Sequence[str], *, is_to_succeed: bool = True) -> str:
    """Return the output of a client, which has to end with exit code 0 unless `is_to_succeed` is false."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    text = printed.decode(errors="replace")
    assert process.returncode == 0 or not is_to_succeed, text[-3000:]
    return text


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is missing")


def _do(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
