# SPDX-License-Identifier: Apache-2.0
"""The services of `reput up`: `python -m cli.commands.spawned PARENT SOCKET SERVICE…` loads them once, and forks them.

To load the modules of a service takes longer than the rest of its start, so the children of `reput up` are forks of a
process that has loaded them. This process has no threads and serves nothing; it forks a child for each
message on its socket (see `cli.launcher`). The child becomes a child of PARENT, because the process between ends at
once and PARENT is the next subreaper.

Invariant: no process outlives PARENT. The kernel is asked to send SIGTERM when the parent dies; a parent that died
before that is detected by its process id. Called by `reput up` only; Linux.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from cli.commands.serve import run_service
from cli.launcher import MESSAGE_SIZE_BYTES_MAX

PR_SET_PDEATHSIG = 1  # linux/prctl.h
ARGUMENTS_START = 47
"""The place of arg_start in /proc/self/stat, from 0; arg_end follows. Source: proc_pid_stat(5)."""
ADOPTION_LOOK_S = 0.001


def main(arguments: list[str]) -> int:
    """Load services and fork them until the socket's end. Returns in each child with the exit code of its service."""
    parent, number, *services = arguments
    if not _tie_to(int(parent)):
        return 1
    _rename(str(parent))
    for service in filter(str.isidentifier, services):
        with contextlib.suppress(ImportError):  # the child of this service reports it, and the others start
            importlib.import_module(f"services.{service}.bootstrap")
    importlib.import_module("libs.runtime.process")
    gc.collect()
    gc.freeze()  # the collector of a child touches no page that all share
    requests = socket.socket(fileno=int(number))
    while True:
        message, files, _, _ = socket.recv_fds(requests, MESSAGE_SIZE_BYTES_MAX, 1)
        if not message:
            return 0
        forked = _fork()
        if forked == 0:
            requests.close()
            return _serve(int(parent), json.loads(message), *files)
        for file in files:
            os.close(file)
        requests.send(str(forked).encode())


def _fork() -> int:
    """Fork twice. Returns the grandchild's process id, whose parent has ended, and 0 in the grandchild."""
    reader, writer = os.pipe()
    if (between := os.fork()) == 0:
        os.close(reader)
        own = os.getpid()
        if (grandchild := os.fork()) == 0:
            os.close(writer)
            while os.getppid() == own:
                time.sleep(ADOPTION_LOOK_S)
            return 0
        os.write(writer, str(grandchild).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        grandchild = int(pipe.read())
    os.waitpid(between, 0)
    return grandchild


def _serve(parent: int, request: dict[str, object], errors: int) -> int:
    """Become a service: with a session, errors, an environment and a command line of its own."""
    if not _tie_to(parent):
        return 1
    os.setsid()
    os.dup2(errors, sys.stderr.fileno())
    os.close(errors)
    service, flags, address = request["service"], request["flags"], request["notify"]
    assert isinstance(service, str)
    assert isinstance(flags, list)
    os.environ["NOTIFY_SOCKET"] = str(address)
    _rename(str(parent), service, *flags)
    return run_service(service, flags)


def _tie_to(parent: int) -> bool:
    """Let this process end with its parent. False if that has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


def _rename(*arguments: str) -> None:
    """Show these arguments in the command line of this process, in place of the arguments that it was started with.

    They are cut to the memory of the first command line, whose last argument is long for this purpose.
    """
    words = (sys.executable, "-Pm", "cli.commands.spawned", *arguments)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(fields[place - 2]) for place in (ARGUMENTS_START, ARGUMENTS_START + 1))
    text = b"".join(word.encode() + b"\0" for word in words)[: max(end - start - 1, 0)]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
