# SPDX-License-Identifier: Apache-2.0
"""Nursery: the services of a crash case, as forks whose log is read from the beginning (see `tests.support.forks`)."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Self

from tests.support.forks import ForkedProcess, ForkServer

START_TIMEOUT_S = 30
END_TIMEOUT_S = 40


class EndedEarly(Exception):
    """A process that should serve has ended. `code` is its exit code, negative for a signal."""

    def __init__(self, child: "Child", code: int) -> None:
        super().__init__(f"{child.service} ended with {code} before it served: {''.join(child.lines[-3:])}")
        self.code = code


class Child:
    """A forked service. `lines` is its output on standard error so far, `ended` its exit code."""

    def __init__(self, service: str, process: ForkedProcess) -> None:
        self.service = service
        self.pid = process.pid
        self.port = 0
        self.lines: list[str] = []
        self.ended = process.ended
        self._process = process
        self._told = asyncio.Event()
        self._reading = asyncio.create_task(self._read(process.stderr))

    async def wait_serving(self) -> None:
        """Return when it serves. Raises EndedEarly, TimeoutError."""
        self.ended.add_done_callback(lambda _: self._told.set())
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._told.wait()
        if self.port == 0:
            raise EndedEarly(self, await self.wait_ended())

    async def wait_ended(self) -> int:
        """Return its exit code, negative for a signal. A child that does not end in time is killed."""
        await asyncio.wait([self.ended], timeout=END_TIMEOUT_S)
        if not self.ended.done():
            self.lines.append(f"killed by the harness, because it did not end within {END_TIMEOUT_S} s\n")
            self.send(signal.SIGKILL)
        code = await self.ended
        await self._reading
        return code

    def send(self, signal_number: int) -> None:
        """Send a signal, if it still runs."""
        self._process.send_signal(signal_number)

    async def _read(self, stderr: asyncio.StreamReader) -> None:
        while line := (await stderr.readline()).decode(errors="replace"):
            self.lines.append(line)
            match = re.search(r'"port": (\d+)', line) if '"serving"' in line else None
            if match is not None:
                self.port = int(match[1])
                self._told.set()


class Nursery:
    """The process that forks the services of cases. `close` kills those that still run."""

    def __init__(self, server: ForkServer, environment: Mapping[str, str]) -> None:
        self._server = server
        self._environment = environment
        self._children: list[Child] = []

    @classmethod
    async def start(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Start the process to fork from; `environment` is added to its own, such as LD_PRELOAD."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        whole = {**kept, **(environment or {})}
        return cls(ForkServer(whole), whole)

    @property
    def is_gone(self) -> bool:
        """Whether the nursery died. Its children died with it, and another nursery has to be started."""
        return self._server.is_gone

    async def spawn(
        self, service: str, arguments: Sequence[str], environment: Mapping[str, str], *, network: str = ""
    ) -> Child:
        """Fork `python -m services.<service>` with these arguments and additions to the environment.

        `network` is the path of a network namespace to be in; empty is the nursery's own.
        Raises ChildProcessError when the nursery itself is gone.
        """
        process = await self._server.fork(service, arguments, {**self._environment, **environment}, network=network)
        child = Child(service, process)
        self._children = [other for other in self._children if not other.ended.done()] + [child]
        return child

    async def close(self) -> None:
        """Kill all children and end."""
        for child in self._children:
            child.send(signal.SIGKILL)
            await child.wait_ended()
        self._server.close()
