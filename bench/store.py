# SPDX-License-Identifier: Apache-2.0
"""A store for a measurement, or copies of a store: `reput up` over a directory, stopped afterwards."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from reput_client import connect

from bench.peers.peer import Durability
from libs.runtime.trust.tokens import local_token_path

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
    """The durability that the store has by default, and that its loads ask for."""
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
    start_s = time.perf_counter()
    with _up(folder, flags, settings) as (pids, _):
        start_to_serving_s = time.perf_counter() - start_s
        shown = f"127.0.0.1:{metrics['indexer']}" if metrics else ""
        yield Store(
            targets["commitlog"], targets["indexer"], targets["janitor"], pids, start_to_serving_s, folder, mode, shown
        )


@contextmanager
def replicated(folder: Path, mode: Durability, count: int, /, **settings: str) -> Iterator[Store]:
    """Serve so many copies of a store, once all are in sync. The targets are the leader's."""
    flags = ["--replicas", str(count), "--no-metrics", "--json"]
    flags += [word for name in SERVICES for word in (f"--{name}-port", "0")]
    settings["REPUT_COMMITLOG_FLUSH_MODE"] = mode
    start_s = time.perf_counter()
    with _up(folder, flags, settings) as (pids, line):
        ready = json.loads(line)
        commitlog, indexer, janitor = (ready[name].partition(",")[0] for name in SERVICES)
        with connect(commitlog=commitlog) as client:
            _wait_until(lambda: len(client.admin.commitlog_status().in_sync_replica_ids) == count)
        yield Store(commitlog, indexer, janitor, pids, time.perf_counter() - start_s, folder, mode, "")


@contextmanager
def copied(store: Store) -> Iterator[str]:
    """Let a log of its own follow a store's, and wait until it does. Where it listens."""
    port = _free_ports()[0]
    flags = ["--data-dir", str(store.folder / "copy"), "--port", str(port), "--metrics-port", "0"]
    flags += ["--role", "follower", "--leader-target", store.commitlog, "--replica-id", "copy"]
    with _process(["serve", "commitlog", *flags], store.folder / "copy.log", {}):
        with connect(commitlog=store.commitlog) as client:
            _wait_until(lambda: len(client.admin.commitlog_status().replicas) == 1)
        yield f"127.0.0.1:{port}"


@contextmanager
def gateway(store: Store) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Serve RocketMQ 5's protocol before a store, with Delivery. Yields where, and the processes."""
    port = _free_ports()[0]
    target = f"127.0.0.1:{port}"
    with delivering(store) as (delivery, delivery_pid):
        own = ["serve", "gateway", "--port", str(port), *_beside(store), "--delivery-target", delivery]
        own.append("--auto-create-topics=true")
        with _process(own, store.folder / "gateway.log", {}) as process:
            _wait_healthy(target)
            yield target, (delivery_pid, process.pid)


@contextmanager
def door(folder: Path, target: str) -> Iterator[tuple[str, int]]:
    """Serve a gateway whose services are all at one address. Yields where, and the process."""
    port = _free_ports()[0]
    words = ["serve", "gateway", "--port", str(port), "--metrics-port", "0"]
    words += [word for name in (*SERVICES, "delivery") for word in (f"--{name}-target", target)]
    with _process(words, folder / "door.log", {}) as process:
        _wait_healthy(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}", process.pid


@contextmanager
def delivering(store: Store) -> Iterator[tuple[str, int]]:
    """Serve a store's Delivery. Yields where, and the process."""
    port = _free_ports()[0]
    words = ["serve", "delivery", "--port", str(port), *_beside(store), "--indexer-target", store.indexer]
    with _process(words, store.folder / "delivery.log", {}) as process:
        _wait_healthy(target := f"127.0.0.1:{port}")
        yield target, process.pid


@contextmanager
def console(store: Store, delivery: str) -> Iterator[tuple[int, int]]:
    """Serve a console of a store. Yields its port, and its process."""
    port = _free_ports()[0]
    words = ["serve", "console", "--port", str(port), *_beside(store), "--indexer-target", store.indexer]
    words += ["--janitor-target", store.janitor, "--delivery-target", delivery]
    words += ["--store-token-file", str(local_token_path())]  # an operator's: the page of retention asks as one
    with _process(words, store.folder / "console.log", {}) as process:
        _wait_until(lambda: _is_listening(port))
        yield port, process.pid


@contextmanager
def front_alone(front: str) -> Iterator[tuple[str, int]]:
    """Serve Append without a log behind it. Yields where, and the process."""
    with alone("bench.inside.empty_server", front) as found:
        yield found


@contextmanager
def alone(module: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """Serve a module that needs no store. Yields its address and its process id."""
    words = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        target = process.stdout.readline().strip()
        if not target:
            raise RuntimeError(f"the front did not start, exit code {process.wait(STOP_TIMEOUT_S)}")
        yield target, process.pid
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


@contextmanager
def _up(folder: Path, flags: Sequence[str], settings: Mapping[str, str]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Run `reput up`. Yields its processes, and the line that says that it is ready."""
    log_path = folder / "log"
    with _process(["up", "--data-dir", str(folder / "store"), "--no-delivery", *flags], log_path, settings) as process:
        assert process.stdout is not None
        if "ready" not in (line := process.stdout.readline()):
            told = log_path.read_text()[-2000:]
            raise RuntimeError(f"the store did not start, exit code {process.wait(STOP_TIMEOUT_S)}: {line}{told}")
        yield tuple(child.pid for child in psutil.Process(process.pid).children(recursive=True)), line


@contextmanager
def _process(words: Sequence[str], log_path: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run `reput`, and stop it in order."""
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [REPUT, *words], env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)


def _beside(store: Store) -> list[str]:
    return ["--commitlog-target", store.commitlog, "--metrics-port", "0"]


def _wait_healthy(target: str) -> None:
    words = [REPUT, "health", "--target", target, "--wait", "60"]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)


def _wait_until(is_so: Callable[[], bool]) -> None:
    """Wait. Raises TimeoutError."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not so within {START_TIMEOUT_S} s")
        time.sleep(POLL_S)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in SERVICES]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
