# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.inside.startup`: the cost of a command beside its call, in processor time and elapsed time.

Each of the commands runs as a process of its own, all in turn, so that a busy machine is busy for all of them; the
figures are medians. They ask a store that runs beside them, except the commands that need no store, and a `status` that
finds no service. Imports have their bytecode, as an installed package has. `reput-probe` is the health check of
containers. `--environment DIR` measures the commands of another environment, such as an environment into which the
wheels were installed: in a checkout finding the packages alone takes each Python twice as long. Prints a table, and
JSON behind it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from reput_server import probe

from bench import store

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 20
NOBODY = tuple(text for name in ("commitlog", "indexer", "janitor") for text in (f"--{name}", "127.0.0.1:1"))
EMPTY = "empty Python"


def commands_for(running: store.Store, programs: Path) -> dict[str, Sequence[str]]:
    """Return the commands of a folder of programs by their name in the table."""
    command = str(programs / "reput")
    targets = {"commitlog": running.commitlog, "indexer": running.indexer, "janitor": running.janitor}
    reput = (command, *(text for name, target in targets.items() for text in (f"--{name}", target)))
    return {
        EMPTY: (str(programs / "python"), "-c", "pass"),
        "reput-probe": (str(programs / "python"), "-IS", probe.__file__, running.commitlog),
        "--help": (*reput, "--help"),
        "put --help": (*reput, "put", "--help"),
        "version": (*reput, "version"),
        "status, nobody": (command, *NOBODY, "status"),
        "health": (*reput, "health"),
        "put": (*reput, "put", "startup", "hello"),
        "status": (*reput, "status"),
        "pull": (*reput, "pull", "startup", "--count", "1"),
        "topics list": (*reput, "topics", "list"),
    }


def cost_ms(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Run a command and return its processor time and how long it took, in milliseconds."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=ROOT, env=environment)
    elapsed_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return 1000 * used_s, 1000 * elapsed_s


def measure(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], rounds: int
) -> dict[str, dict[str, float]]:
    """Return the medians of each command, and its cost beyond an empty Python."""
    for command in commands.values():
        cost_ms(command, environment)  # keeps bytecode
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            costs[name].append(cost_ms(command, environment))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in costs.items()}
    empty_ms = medians[EMPTY][0]
    return {
        name: {
            "processor_ms": round(processor_ms, 1),
            "beyond_empty_ms": round(processor_ms - empty_ms, 1),
            "elapsed_ms": round(elapsed_ms, 1),
        }
        for name, (processor_ms, elapsed_ms) in medians.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(sys.prefix)
    parser.add_argument("--environment", type=Path, default=here, help="a virtual environment that has `reput`")
    programs = parser.parse_args().environment.resolve() / "bin"
    with tempfile.TemporaryDirectory() as folder, store.running(Path(folder), "async") as running:
        bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}
        commands, environment = commands_for(running, programs), {**os.environ, **bytecode}
        cost_ms(commands["put"], environment)  # there is something to read
        found = measure(commands, environment, ROUNDS)
    print(f"{'':<16}{'processor ms':>14}{'beyond empty':>14}{'elapsed ms':>12}")
    for name, row in found.items():
        print(f"{name:<16}{row['processor_ms']:>14}{row['beyond_empty_ms']:>14}{row['elapsed_ms']:>12}")
    print(json.dumps({"rounds": ROUNDS, "commands": found}))


if __name__ == "__main__":
    main()
