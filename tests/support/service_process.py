# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of both services: a real process, its refusals taken apart, a digest of its files."""

import asyncio
import contextlib
import functools
import hashlib
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from tests.support.forks import ForkedProcess, ForkServer
from tests.support.patience import LIMIT_S
from tests.support.surroundings import ANY_DISK, free_port

STATUS_KEY = "grpc-status-details-bin"
LAST_WORDS_S = 1.0
LAST_WORDS_BYTES = 1 << 16


class Refusal:
    """A failed call's status, taken apart."""

    def __init__(self, error: grpc.aio.AioRpcError | Status) -> None:
        if isinstance(error, Status):
            status = error
        else:
            details = dict(error.trailing_metadata() or ())
            status = Status.FromString(details[STATUS_KEY])
            assert status.code == error.code().value[0]
        self.code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
        infos = [detail for detail in status.details if detail.Is(ErrorInfo.DESCRIPTOR)]
        assert len(infos) == 1
        info = ErrorInfo.FromString(infos[0].value)
        assert info.domain == "reput"
        self.reason = info.reason
        self.metadata = dict(info.metadata)
        self.message = status.message
        self.fields = [
            violation.field
            for detail in status.details
            if detail.Is(BadRequest.DESCRIPTOR)
            for violation in BadRequest.FromString(detail.value).field_violations
        ]

    @property
    def field(self) -> str:
        """The wrong field, from the metadata or the BadRequest."""
        return self.metadata.get("field", self.fields[0] if self.fields else "")


class Ended(AssertionError):
    """The process has ended before it wrote the expected line."""


@functools.cache
def fork_server() -> ForkServer:
    """The process that all services of this test run are forked from."""
    return ForkServer()


class ServiceProcess:
    """`python -m services.<service>` as a fork. Subclasses name the service and the flags that it always gets."""

    service = ""
    flags: tuple[str, ...] = ()
    has_files = True
    """Whether the service has a directory."""

    def __init__(self, child: ForkedProcess) -> None:
        self.child = child
        self.lines: list[str] = []
        self.port = 0

    @classmethod
    async def start(cls, data_dir: Path, *flags: str, failpoints: str = "") -> Self:
        """Start the process, which may still be recovering, or fail to start."""
        json = {f"REPUT_{cls.service.upper()}_LOG_FORMAT": "json"}
        environment = {**os.environ, **ANY_DISK, **json, "REPUT_FAILPOINTS": failpoints}
        directory = ("--data-dir", str(data_dir)) if cls.has_files else ()
        port = () if "--port" in flags else ("--port", str(free_port()))  # where the test may start it again
        arguments = ("--metrics-port", "0", *directory, *cls.flags, *port, *flags)
        child = await fork_server().fork(cls.service, arguments, environment)
        return cls(child)

    async def wait_serving(self) -> Self:
        """Read its log until it serves."""
        await self.wait_line('"serving"')
        match = re.search(r'"port": (\d+)', self.lines[-1])
        assert match
        self.port = int(match[1])
        return self

    async def wait_line(self, part: str) -> None:
        """Read its log up to a line with this text."""
        while not self.lines or part not in self.lines[-1]:
            line = (await self.child.stderr.readline()).decode()
            if not line:
                raise Ended(self.lines)
            self.lines.append(line)

    async def wait_ended(self) -> int:
        """Read its log to the end, and return the exit code.

        A process that does not end is killed, and its exit code shows it.
        """
        watchdog = asyncio.get_running_loop().call_later(LIMIT_S, self.child.kill)
        rest = await self.child.communicate()
        watchdog.cancel()
        self.lines += rest.decode().splitlines(keepends=True)
        return await self.child.wait()

    @contextlib.asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """Add the state and the last log lines of the process to the error of a call within the block."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.child.wait(), LAST_WORDS_S)
            said = b""
            with contextlib.suppress(TimeoutError):
                said = await asyncio.wait_for(self.child.stderr.read(LAST_WORDS_BYTES), LAST_WORDS_S)
            error.add_note(f"{self.service}: exit code {self.child.returncode}, its last lines: {said.decode()}")
            raise

    async def end(self, signal_number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.child.send_signal(signal_number)
        return await self.wait_ended()


def digest(directory: Path) -> dict[str, str]:
    """Return a hash of every file below a directory."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
