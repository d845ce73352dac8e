# SPDX-License-Identifier: Apache-2.0
"""A store for one measurement: `reput up` over a temporary directory, gone afterwards."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPUT = str(Path(sys.executable).parent / "reput")
SERVICES = ("commitlog", "indexer", "janitor")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Store:
    """Where the services of a running store listen."""

    commitlog: str
    indexer: str


@contextmanager
def running(**settings: str) -> Iterator[Store]:
    """Start the three services with settings from the environment; stop them and remove the directory at the end."""
    folder = Path(tempfile.mkdtemp(prefix="reput-bench-"))
    targets = {service: f"127.0.0.1:{port}" for service, port in zip(SERVICES, _free_ports(), strict=True)}
    flags = [word for name, target in targets.items() for word in (f"--{name}-port", target.partition(":")[2])]
    quiet = {f"REPUT_{service.upper()}_METRICS_PORT": "0" for service in SERVICES}
    log_path = folder / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [REPUT, "up", "--data-dir", str(folder / "store"), *flags],
            env={**os.environ, **quiet, **settings},
            stdout=log,
            stderr=log,
        )
    try:
        for target in targets.values():
            health = [REPUT, "health", "--target", target, "--wait", str(START_TIMEOUT_S)]
            if subprocess.run(health, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                raise RuntimeError(f"{target} did not start:\n{log_path.read_text()}")
        yield Store(targets["commitlog"], targets["indexer"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)
        shutil.rmtree(folder)


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in SERVICES]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
