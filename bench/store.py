# SPDX-License-Identifier: Apache-2.0
"""A store for one measurement: `reput up` over a directory, stopped afterwards."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.peers.peer import Durability

REPUT = str(Path(sys.executable).parent / "reput")
SERVICES = ("commitlog", "indexer", "janitor")
START_TIMEOUT_S = 600
STOP_TIMEOUT_S = 120
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Store:
    """Where the services of a running store listen, and their processes."""

    commitlog: str
    indexer: str
    janitor: str
    pids: tuple[int, ...]
    start_to_serving_s: float
    folder: Path
    mode: Durability
    """What the store waits for by itself, and its loads ask for."""
    indexer_metrics: str
    """Address of the Indexer's metrics, empty without them."""


@contextmanager
def running(folder: Path, mode: Durability, has_metrics: bool = False, /, **settings: str) -> Iterator[Store]:
    """Serve the store in `folder/store` in a flush mode, with settings from the environment, and stop it in order."""
    targets = {service: f"127.0.0.1:{port}" for service, port in zip(SERVICES, _free_ports(), strict=True)}
    metrics = dict(zip(SERVICES, _free_ports(), strict=True)) if has_metrics else {}
    settings["REPUT_COMMITLOG_FLUSH_MODE"] = mode
    settings |= {f"REPUT_{name.upper()}_METRICS_PORT": str(port) for name, port in metrics.items()}
    flags = [] if metrics else ["--no-metrics"]
    flags += [word for name, target in targets.items() for word in (f"--{name}-port", target.partition(":")[2])]
    log_path = folder / "log"
    with log_path.open("ab") as log:
        start_s = time.perf_counter()
        process = subprocess.Popen(
            [REPUT, "up", "--data-dir", str(folder / "store"), *flags],
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        if not (line := process.stdout.readline()).startswith("ready"):
            told = log_path.read_text()[-2000:]
            raise RuntimeError(f"the store did not start, exit code {process.wait(STOP_TIMEOUT_S)}: {line}{told}")
        start_to_serving_s = time.perf_counter() - start_s
        pids = tuple(child.pid for child in psutil.Process(process.pid).children(recursive=True))
        shown = f"127.0.0.1:{metrics['indexer']}" if metrics else ""
        yield Store(
            targets["commitlog"], targets["indexer"], targets["janitor"], pids, start_to_serving_s, folder, mode, shown
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in SERVICES]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
