# SPDX-License-Identifier: Apache-2.0
"""Services as forks: whole processes that start quickly, because they share modules that are loaded once.

A new interpreter needs most of a second to import a service; a fork of an interpreter that has done so serves after
some milliseconds. The fork is a whole process all the same: its own main(), command line, environment, files, signals
and exit code. Invariants: the process to fork from has a single thread, and of gRPC uses the import alone; no fork
outlives it, and it does not outlive its caller. Linux. Callers: any event loop, and another one for each test.
`python -m tests.support.forks FD` is the other end: requests are JSON packets on a socket, with two pipes each: the
fork's standard error, and its process id and exit code, a line each.
"""

import asyncio
import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SERVICES = ("commitlog", "indexer", "janitor", "delivery", "gateway")
PACKET_SIZE_BYTES_MAX = 1 << 16
LINE_SIZE_BYTES_MAX = 1 << 20
DESCRIPTORS_MAX = 1 << 16
PR_SET_PDEATHSIG = 1  # linux/prctl.h
CLONE_NEWNET = 0x40000000  # linux/sched.h


class News(asyncio.Protocol):
    """The lines of a fork's second pipe: its process id, and its exit code, which is negative for a signal."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.pid: asyncio.Future[int] = loop.create_future()
        self.code: asyncio.Future[int] = loop.create_future()
        self._text = b""
        self._pipe: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the pipe, to close it after the exit code."""
        self._pipe = transport

    def data_received(self, data: bytes) -> None:
        """Take the lines that the pipe has."""
        self._text += data
        for future, line in zip((self.pid, self.code), self._text.split(b"\n")[:-1], strict=False):
            if not future.done():
                future.set_result(int(line))
        if self.code.done() and self._pipe is not None:
            self._pipe.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process to fork from has ended, and its forks with it, unless the exit code came before."""
        if not self.pid.done():
            self.pid.set_exception(ChildProcessError("the process to fork from has ended"))
        if not self.code.done():
            self.code.set_result(-signal.SIGKILL)


class ForkedProcess:
    """A forked service, with the methods of `asyncio.subprocess.Process` that tests call.

    `ended` has the exit code, negative for a signal. A service that nothing refers to any more is killed.
    """

    def __init__(self, pid: int, stderr: asyncio.StreamReader, ended: asyncio.Future[int]) -> None:
        self.pid = pid
        self.stderr = stderr
        self.ended = ended

    def __del__(self) -> None:
        self.kill()

    @property
    def returncode(self) -> int | None:
        """The exit code, None while it runs."""
        return self.ended.result() if self.ended.done() else None

    def send_signal(self, signal_number: int) -> None:
        """Send a signal, if it still runs."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end, and return the exit code."""
        return await asyncio.shield(self.ended)

    async def communicate(self) -> bytes:
        """Wait for its end, and return the rest of its standard error."""
        rest = await self.stderr.read()
        await self.wait()
        return rest


class ForkServer:
    """The caller's end. It and all forks end with `close`, or with the calling process."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
                cwd=REPOSITORY,
                env={**(os.environ if environment is None else environment), "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
            )

    @property
    def is_gone(self) -> bool:
        """Whether the process to fork from has ended, and all forks with it."""
        return self._process.poll() is not None

    async def fork(
        self, service: str, arguments: Sequence[str], environment: Mapping[str, str], *, network: str = ""
    ) -> ForkedProcess:
        """Fork `python -m services.<service>` with these arguments and this environment.

        `network` is the path of a network namespace to be in; empty is the caller's own.
        Raises ChildProcessError when the process to fork from has ended.
        """
        assert service in SERVICES
        request = {
            "service": service,
            "arguments": list(arguments),
            "environment": dict(environment),
            "network": network,
        }
        errors, errors_end = os.pipe()
        news, news_end = os.pipe()
        stderr, told = await _reader_of(errors), await _news_of(news)
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], [errors_end, news_end])
        except OSError as error:
            raise ChildProcessError("the process to fork from has ended") from error
        finally:
            os.close(errors_end)
            os.close(news_end)
        return ForkedProcess(await told.pid, stderr, told.code)

    def close(self) -> None:
        """Kill all forks and end."""
        self._control.close()
        self._process.wait()


async def _reader_of(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_SIZE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


async def _news_of(descriptor: int) -> News:
    _, news = await asyncio.get_running_loop().connect_read_pipe(News, os.fdopen(descriptor, "rb", 0))
    return news


def main(descriptor: int) -> int:
    """Serve requests until the caller closes the socket. Then all forks die with this process."""
    _die_with_parent()
    for service in SERVICES:
        importlib.import_module(f"services.{service}.bootstrap")
    run = importlib.import_module("cli.commands.serve").run_service
    importlib.import_module("libs.runtime.process")
    gc.collect()
    gc.freeze()
    wakeup_reading, wakeup_writing = os.pipe()
    for end in (wakeup_reading, wakeup_writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakeup_writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    told: dict[int, int] = {}
    with socket.socket(fileno=descriptor) as control, selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wakeup_reading, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    data, descriptors, _, _ = socket.recv_fds(control, PACKET_SIZE_BYTES_MAX, 2)
                    if not data:
                        return 0
                    errors, news = descriptors
                    pid = _fork(json.loads(data), errors, run)
                    told[pid] = news
                    os.close(errors)
                    _tell(news, pid)
                else:
                    os.read(wakeup_reading, PACKET_SIZE_BYTES_MAX)
                    _reap(told)


def _reap(told: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            news = told.pop(pid)
            _tell(news, os.waitstatus_to_exitcode(status))
            os.close(news)


def _tell(news: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the caller's event loop has ended
        os.write(news, f"{number}\n".encode())


def _fork(request: dict[str, Any], standard_error: int, run: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    code: int = 1
    try:
        _die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(standard_error, 2)
        os.closerange(3, DESCRIPTORS_MAX)
        _enter(request["network"])
        os.environ.clear()
        os.environ.update(request["environment"])
        code = run(request["service"], request["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001 - the fork must not return into the loop of requests
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
