# SPDX-License-Identifier: Apache-2.0
"""Launcher: starts the services of `reput up` as forks of a process that has loaded their modules.

A request is a message on a socket: JSON, with the file to which the service writes its errors. The answer is the
process id. The service becomes a child of this process, which is the subreaper of its descendants. Linux only.
Callers: a single event loop, its main thread (the kernel ties children to the thread that made them).
"""

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
MESSAGE_SIZE_BYTES_MAX = 1 << 16
ROOM_FOR_NAME = 8_192
"""Bytes for the command lines that the forks show."""


class LauncherEnded(Exception):
    """The process that forks services has ended."""

    exit_code = 1


class Launched:
    """A service that was started. `stderr` has its errors."""

    def __init__(self, pid: int, stderr: asyncio.StreamReader) -> None:
        self.pid, self.stderr = pid, stderr
        self.returncode: int | None = None
        """The exit code, or the negative number of the signal that killed it. None while it runs."""
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        """Return the exit code when it has ended."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal if it runs. Until it is reaped here its process id is no other's."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def reap(self) -> None:
        """Take the exit code if the service has ended. To be called after each SIGCHLD."""
        if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
            self._ended.set()


class Launcher:
    """The process that forks services. It loads the modules of the named services, and ends with `close`."""

    def __init__(self, services: Sequence[str]) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._turn = asyncio.Lock()
        self._launched: list[Launched] = []
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        words = [str(os.getpid()), str(theirs.fileno()), *services, "-" * ROOM_FOR_NAME]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-Pm", "cli.commands.spawned", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": _own_path()},
            )

    async def start(self, service: str, flags: Sequence[str], notify: str) -> Launched:
        """Start a service, which reports to the socket `notify` that it is ready. Raises LauncherEnded."""
        reader, writer = os.pipe()
        stderr = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stderr), os.fdopen(reader, "rb"))
        request = json.dumps({"service": service, "flags": list(flags), "notify": notify}).encode()
        async with self._turn:
            try:
                socket.send_fds(self._socket, [request], [writer])
                answer = await loop.sock_recv(self._socket, MESSAGE_SIZE_BYTES_MAX)
            except OSError as error:
                raise LauncherEnded(f"the process that starts services: {error}") from error
            finally:
                os.close(writer)
        if not answer:
            raise LauncherEnded("the process that starts services has ended")
        launched = Launched(int(answer), stderr)
        self._launched.append(launched)
        launched.reap()  # its signal may have come before
        return launched

    def close(self) -> None:
        """End the process, and look at services no more. They run on."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        self._socket.close()
        self._process.wait()

    def _reap(self) -> None:
        for launched in self._launched:
            launched.reap()
        self._launched = [launched for launched in self._launched if launched.returncode is None]


def _own_path() -> str:
    """Return PYTHONPATH for services, with which they find our `cli` before any other."""
    return os.pathsep.join(filter(None, (str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH"))))
