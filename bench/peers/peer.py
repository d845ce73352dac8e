# SPDX-License-Identifier: Apache-2.0
"""What a measured system is to the driver: a name, settings that people can read, and servers that start and end."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Durability = Literal["async", "sync"]
Operation = Literal["append", "latency", "read", "lookup"]
LOAD_TIMEOUT_S = 600


class LoadFailed(Exception):
    """The load generator of a system ended with an error; the text says which."""


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
        """The settings that differ from the system's own defaults, for the report."""

    def prepare(self) -> Mapping[str, str]:
        """Fetch and build what is missing; package to version. Raises PeerMissing when this machine can't."""

    def running(self, folder: Path, durability: Durability) -> AbstractContextManager[Serving]:
        """Serve from an empty folder; the caller removes the folder afterwards."""


class PeerMissing(Exception):
    """This machine can't run a peer; the text says what to install."""


def run_load(serving: Serving, operation: Operation, arguments: Mapping[str, object]) -> dict[str, object]:
    """One load on a running system: what its generator printed. Raises LoadFailed."""
    flags = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    command = [*serving.load_command, operation, "--target", serving.target, *flags]
    command += serving.load_arguments.get(operation, ())
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    result: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
