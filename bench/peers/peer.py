# SPDX-License-Identifier: Apache-2.0
"""A measured system as the driver sees it: a name, settings that people can read, and servers that start and end."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Durability = Literal["async", "sync"]
Operation = Literal["append", "latency", "read", "lookup", "receive"]
LOAD_TIMEOUT_S = 600


class LoadFailed(Exception):
    """The load generator of a system ended with an error, which is in the text."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A system that serves: where, and the processes whose memory and CPU time count as the server's."""

    target: str
    pids: Sequence[int]
    load_command: Sequence[str]
    """Command line of the load generator up to the name of the operation, such as ("java", "-cp", …)."""
    load_arguments: Mapping[str, Sequence[str]]
    """More arguments for an operation."""


class Peer(Protocol):
    """A system. It is fetched and built once, and started afresh for each measurement."""

    name: str
    operations: frozenset[Operation]

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the settings that differ from the system's own defaults, for the report."""

    def prepare(self) -> Mapping[str, str]:
        """Fetch and build the missing parts. Returns package to version. Raises PeerMissing when this machine can't."""

    def running(self, folder: Path, durability: Durability) -> AbstractContextManager[Serving]:
        """Serve from an empty folder, which the caller removes afterwards."""


class PeerMissing(Exception):
    """This machine can't run a peer. The text names the program to install."""


def run_load(
    serving: Serving,
    operation: Operation,
    arguments: Mapping[str, object],
    on_printed: Callable[[], None] = lambda: None,
) -> dict[str, object]:
    """Run a load on a running system. Returns its generator's output. Raises LoadFailed.

    `on_printed` is called right after the printing, before the generator has ended: its clock has stopped just before.
    """
    flags = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    command = [*serving.load_command, operation, "--target", serving.target, *flags]
    command += serving.load_arguments.get(operation, ())
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout is not None
            limit = threading.Timer(LOAD_TIMEOUT_S, process.kill)
            limit.start()
            try:
                lines = []
                for line in process.stdout:
                    on_printed()
                    lines.append(line)
                process.wait()
            except BaseException:
                process.kill()
                raise
            finally:
                limit.cancel()
        errors.seek(0)
        told = errors.read()[-2000:]
    if process.returncode != 0:
        raise LoadFailed(f"{' '.join(command)}: exit code {process.returncode}\n{told}")
    result: dict[str, object] = json.loads(lines[-1])
    return result
