# SPDX-License-Identifier: Apache-2.0
"""Nursery: starts service processes quickly, by forking them from a process that has imported everything.

A fresh interpreter needs most of a second to import a service; a fork of an interpreter that has done so serves after
some milliseconds. The fork is a whole process all the same: its own main(), command line, environment, files, signals
and exit code. Invariants: the nursery itself has a single thread and uses nothing of gRPC but its import; no child
outlives it, and it does not outlive its caller. Linux. Callers: an event loop in each process that wants children.
`python -m tests.crash.nursery FD` is the other end: requests and answers are JSON packets on a socket.
"""

import asyncio
import contextlib
import ctypes
import gc
import importlib
import json
import os
import re
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SERVICES = ("commitlog", "indexer", "janitor", "delivery", "gateway")
PACKET_SIZE_BYTES_MAX = 1 << 16
LINE_SIZE_BYTES_MAX = 1 << 20
START_TIMEOUT_S = 30
END_TIMEOUT_S = 40
PR_SET_PDEATHSIG = 1  # linux/prctl.h
CLONE_NEWNET = 0x40000000  # linux/sched.h


class EndedEarly(Exception):
    """A process that should serve has ended. `code` is its exit code, negative for a signal."""

    def __init__(self, child: "Child", code: int) -> None:
        super().__init__(f"{child.service} ended with {code} before it served: {''.join(child.lines[-3:])}")
        self.code = code


class Child:
    """A forked service. `lines` is its output on standard error so far."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.pid = 0
        self.port = 0
        self.lines: list[str] = []
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._told = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def follow(self, descriptor: int) -> None:
        """Read its standard error until it ends."""
        self._reading = asyncio.create_task(self._read(descriptor))

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
        if self._reading is not None:
            await self._reading
        return code

    def send(self, signal_number: int) -> None:
        """Send a signal, if it still runs."""
        if self.pid and not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    async def _read(self, descriptor: int) -> None:
        reader = asyncio.StreamReader(limit=LINE_SIZE_BYTES_MAX)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
        )
        while line := (await reader.readline()).decode(errors="replace"):
            self.lines.append(line)
            match = re.search(r'"port": (\d+)', line) if '"serving"' in line else None
            if match is not None:
                self.port = int(match[1])
                self._told.set()
        transport.close()


class Nursery:
    """The caller's end. Make it with `start`; `close` kills children that still run."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._children: dict[int, Child] = {}
        self._answer: asyncio.Future[int] | None = None
        self._newborn: Child | None = None
        self._spawning = asyncio.Lock()
        self.is_gone = False
        """Whether the nursery died. Its children died with it, and another nursery has to be started."""
        asyncio.get_running_loop().add_reader(control, self._receive)

    @classmethod
    async def start(cls, environment: Mapping[str, str] | None = None) -> "Nursery":
        """Start the process to fork from; `environment` is added to its own, such as LD_PRELOAD."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            kept = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.crash.nursery", str(theirs.fileno())),
                cwd=REPOSITORY,
                env={**kept, **(environment or {})},
                pass_fds=[theirs.fileno()],
            )
        ours.setblocking(False)
        return cls(process, ours)

    async def spawn(
        self, service: str, arguments: Sequence[str], environment: Mapping[str, str], *, network: str = ""
    ) -> Child:
        """Fork `python -m services.<service>` with these arguments and additions to the environment.

        `network` is the path of a network namespace to be in; empty is the nursery's own.
        Raises ChildProcessError when the nursery itself is gone.
        """
        assert service in SERVICES
        request = {"service": service, "arguments": list(arguments), "environment": dict(environment)}
        async with self._spawning:  # there is room for a single answer
            return await self._spawn(service, json.dumps({**request, "network": network}).encode())

    async def _spawn(self, service: str, packet: bytes) -> Child:
        if self.is_gone:
            raise ChildProcessError("the nursery is gone")
        reading, writing = os.pipe()
        self._answer = asyncio.get_running_loop().create_future()
        self._newborn = child = Child(service)
        try:
            socket.send_fds(self._control, [packet], [writing])
        finally:
            os.close(writing)
        child.pid = await self._answer
        child.follow(reading)
        return child

    async def close(self) -> None:
        """Kill all children and end."""
        for child in list(self._children.values()):
            child.send(signal.SIGKILL)
            await child.wait_ended()
        self._let_go()
        await self._process.wait()

    def _receive(self) -> None:
        for packet in self._packets():
            if "code" in packet:
                self._children.pop(packet["pid"]).ended.set_result(packet["code"])
            else:
                assert self._answer is not None
                assert self._newborn is not None
                self._children[packet["pid"]] = self._newborn  # at once: news of its death may come right behind
                self._answer.set_result(packet["pid"])
        if self.is_gone:
            for child in self._children.values():
                child.ended.set_result(-signal.SIGKILL)
            self._children.clear()
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ChildProcessError("the nursery is gone"))

    def _packets(self) -> list[dict[str, Any]]:
        found = []
        try:
            while data := self._control.recv(PACKET_SIZE_BYTES_MAX):
                found.append(json.loads(data))
            self._let_go()
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self._let_go()
        return found

    def _let_go(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()


def main(descriptor: int) -> int:
    """Serve requests until the caller closes the socket; then kill all children."""
    _die_with_parent()
    mains = {name: importlib.import_module(f"services.{name}.bootstrap") for name in SERVICES}
    importlib.import_module("libs.runtime.process")
    gc.collect()
    gc.freeze()
    wakeup_reading, wakeup_writing = os.pipe()
    for end in (wakeup_reading, wakeup_writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakeup_writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=descriptor) as control, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wakeup_reading, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    data, descriptors, _, _ = socket.recv_fds(control, PACKET_SIZE_BYTES_MAX, 1)
                    if not data:
                        return 0  # the children die with this process
                    control.send(json.dumps({"pid": _fork(json.loads(data), descriptors[0], mains)}).encode())
                else:
                    os.read(wakeup_reading, PACKET_SIZE_BYTES_MAX)
                    _reap(control)


def _reap(control: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            control.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _fork(request: dict[str, Any], standard_error: int, mains: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        os.close(standard_error)
        return pid
    code = 1
    try:
        _die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(standard_error, 2)
        os.closerange(3, 64)
        _enter(request["network"])
        os.environ.update(request["environment"])
        process = importlib.import_module("libs.runtime.process")
        bootstrap = mains[request["service"]]
        code = process.main(
            request["arguments"], section=request["service"], settings_class=bootstrap.Settings, build=bootstrap.Service
        )
    except BaseException:  # noqa: BLE001 - the child must not return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _enter(network: str) -> None:
    if not network:
        return
    descriptor = os.open(network, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"{network} can't be entered")
    os.close(descriptor)


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
