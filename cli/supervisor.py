# SPDX-License-Identifier: Apache-2.0
"""Supervisor: services as child processes, started in order, stopped in reverse order.

Invariants: no child outlives `run`. A child is ready when it reports it (systemd's notify protocol), never because a
process serves at its port. The first child that ends by itself ends all others, and its exit code and its last
line are reported; with `restarts` it is started again instead, and the others continue without it. The end of an
optional child is a line, and no more. Children have sessions of their own, so that a Ctrl-C of the terminal reaches
only the parent, which then stops the children in turn.
Callers: a single event loop, its main thread (the kernel ties children to the thread that made them).
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.free_ports import let_go
from cli.launcher import Launched, Launcher

RESTART_S = 1.0
"""Time between the end of a child and its restart."""
STOP_TIMEOUT_S = 80.0
"""A service drains up to 10 s and closes up to 60 s by default; a child that takes longer is killed."""


class ChildEnded(Exception):
    """A service ended by itself, or could not start. `exit_code` is never 0."""

    def __init__(self, child: "Child", return_code: int) -> None:
        if return_code < 0:
            reason = f"was killed by {signal.Signals(-return_code).name}"
        else:
            reason = child.last_line or f"ended with exit code {return_code}"
        super().__init__(f"{child.label}: {reason}")
        self.child = child
        self.exit_code = return_code if return_code > 0 else 1


@dataclass
class Child:
    """A service to run: its name, its flags, and its address."""

    name: str
    flags: Sequence[str]
    target: str
    replica_id: str = ""
    """The copy of the store that it belongs to, if there are several."""
    is_optional: bool = False
    """The others continue when it ends, or can't start."""
    shown: str = ""
    """Its address in the line that says that all are ready, for an optional child."""
    notice: socket.socket | None = field(default=None, repr=False)
    """The socket at which the service reports that it is ready."""
    process: Launched | None = None
    last_line: str = ""
    """The last line of the service about itself, without its name."""
    output: asyncio.Task[None] | None = field(default=None, repr=False)
    telling: asyncio.Task[None] | None = field(default=None, repr=False)
    """Tells the end of an optional child."""

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    @property
    def label(self) -> str:
        """Its name, which no other child has."""
        return f"{self.name} {self.replica_id}" if self.replica_id else self.name


class Supervisor:
    """Runs children. `on_line` gets every line that they log, without its end.

    With `restarts` a child that ends after all were ready is started again.
    """

    def __init__(self, children: Sequence[Child], on_line: Callable[[str], None], *, restarts: bool = False) -> None:
        self._children = children
        self._on_line = on_line
        self._restarts = restarts
        self._stop = asyncio.Event()
        self._launcher: Launcher | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End `run` in an orderly way. May be repeated. From the event loop."""
        self._stop.set()

    def kill(self) -> None:
        """End `run` now by killing the children that still run. From the event loop."""
        self._stop.set()
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(signal.SIGKILL)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Start all, children with the name of the first child before the others, call `on_ready`, return after `stop`.

        Raises ChildEnded and LauncherEnded, after all others were stopped.
        """
        stopped = asyncio.ensure_future(self._stop.wait())
        self._launcher = Launcher(sorted({child.name for child in self._children}))
        try:
            name = self._children[0].name
            firsts, others = ([c for c in self._children if (c.name == name) is is_first] for is_first in (True, False))
            for group in (firsts, others):
                for child in group:
                    await self._spawn(child)
                for child in group:
                    await self._wait(stopped, asyncio.create_task(_ready(child)))
            if not self._stop.is_set():
                on_ready()
                await self._watch(stopped)
        finally:
            stopped.cancel()
            late = await self._stop_all()
            self._launcher.close()
            for child in self._children:
                if child.notice is not None:
                    child.notice.close()
                if child.telling is not None:
                    child.telling.cancel()
        if late is not None:
            raise late

    async def _watch(self, stopped: asyncio.Future[Any]) -> None:
        """Wait for `stop`. Raises ChildEnded unless children are started again."""
        while not self._stop.is_set():
            try:
                await self._wait(stopped)
            except ChildEnded as ended:
                if not self._restarts:
                    raise
                self._on_line(f"{ended}; it is started again")
                await asyncio.wait([stopped], timeout=RESTART_S)
                await self._spawn(ended.child)

    async def _spawn(self, child: Child) -> None:
        """Start a child, unless `stop` was called."""
        assert self._launcher is not None
        if self._stop.is_set():
            return
        address = f"\0reput-up-{os.getpid()}-{child.label.replace(' ', '-')}"
        if child.notice is not None:
            child.notice.close()
        child.notice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        child.notice.bind(address)
        let_go(int(child.target.rpartition(":")[2]))
        child.process = await self._launcher.start(child.name, child.flags, address.replace("\0", "@"))
        child.output = asyncio.create_task(self._read_output(child))
        if child.is_optional:
            child.telling = asyncio.create_task(self._tell_end(child))

    async def _tell_end(self, child: Child) -> None:
        """Report the end of an optional child, without which the others continue."""
        assert child.process is not None
        assert child.output is not None
        return_code = await child.process.wait()
        await asyncio.wait([child.output])
        if not self._stop.is_set():
            self._on_line(f"{ChildEnded(child, return_code)}; the store runs without it")

    async def _read_output(self, child: Child) -> None:
        """Pass on the log lines of a child, but keep its last line about itself."""
        assert child.process is not None
        prefix = f"reput {child.name}: "
        while line := await _line(child.process.stderr):
            if line.startswith(prefix):
                child.last_line = line.removeprefix(prefix)
            else:
                self._on_line(line)

    async def _wait(self, stopped: asyncio.Future[Any], task: asyncio.Task[None] | None = None) -> None:
        """Wait for `stop` or for the end of a task. Raises ChildEnded when a child ends first."""
        ends = {
            asyncio.ensure_future(child.process.wait()): child
            for child in self._children
            if child.process is not None and not child.is_optional
        }
        awaited: list[asyncio.Future[Any]] = [stopped, *ends, *([task] if task is not None else [])]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            ended = next((child for end, child in ends.items() if end.done()), None)
        finally:
            for future in awaited[1:]:
                future.cancel()
        if ended is not None and not self._stop.is_set():
            assert ended.process is not None
            assert ended.process.returncode is not None
            if ended.output is not None:
                await asyncio.wait([ended.output])
            raise ChildEnded(ended, ended.process.returncode)

    async def _stop_all(self) -> ChildEnded | None:
        """Stop children, the last child first. Returns the first that did not end cleanly although it was asked to."""
        late: ChildEnded | None = None
        for child in reversed(self._children):
            process = child.process
            if process is None:
                continue
            was_running = process.returncode is None
            if was_running:
                process.send_signal(signal.SIGTERM)
                try:
                    await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
                except TimeoutError:
                    process.send_signal(signal.SIGKILL)
                    await process.wait()
            if child.output is not None:
                await asyncio.wait([child.output])
            has_begun = process.returncode != -signal.SIGTERM  # services handle SIGTERM as soon as they begin
            if was_running and process.returncode and has_begun and late is None:
                late = ChildEnded(child, process.returncode)
        return late


async def _ready(child: Child) -> None:
    """Return when the service has reported that it is ready, or an optional service has ended."""
    reporting = asyncio.ensure_future(_reported(child))
    try:
        await asyncio.wait(
            [reporting, *([child.telling] if child.telling is not None else [])], return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        reporting.cancel()


async def _reported(child: Child) -> None:
    """Return when the service has reported that it is ready."""
    while child.notice is not None and await asyncio.get_running_loop().sock_recv(child.notice, 4096) != b"READY=1":
        pass


async def _line(stream: asyncio.StreamReader) -> str:
    """Return the next line without its end, "" at the stream's end. Lines longer than the buffer come in pieces."""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            line = end.partial
        except asyncio.LimitOverrunError as overrun:
            line = await stream.readexactly(overrun.consumed)
        if not line:
            return ""
        if text := line.decode(errors="backslashreplace").rstrip():
            return text
