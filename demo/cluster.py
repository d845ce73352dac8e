# SPDX-License-Identifier: Apache-2.0
"""The services of a store as processes of this machine: start, wait until they serve, kill, restart, stop.

Invariant: after `Cluster` was left in any way, none of its processes runs any more.
Each service logs to `<logs>/<service>.log`; the end of that file is part of the error when a service does not start.
"""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = Path(__file__).resolve().parent.parent
SERVICES = ("commitlog", "indexer", "janitor")
START_TIMEOUT_S = 300.0
"""Longer than on any machine, so that only a blocked service reaches it."""
STOP_TIMEOUT_S = 90.0
"""The limit of the services themselves: they drain up to 20 s and close up to 60 s."""
CHECK_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.05
LOG_LINES_SHOWN = 15
PORTS = (20_000, 32_000)
"""Below the range of ports of outgoing connections in Linux: a port stays free while its service is down."""
NO_PROXY = (("grpc.enable_http_proxy", 0),)
SETTINGS = (
    "REPUT_COMMITLOG_",
    "REPUT_INDEXER_",
    "REPUT_JANITOR_",
    "REPUT_DELIVERY_",
    "REPUT_GATEWAY_",
    "REPUT_CONSOLE_",
    "REPUT_CLIENT_",
    "REPUT_FAILPOINTS",
)
"""Prefixes of variables with settings of another store. This store ignores them."""
ANY_DISK = {
    "REPUT_COMMITLOG_DISK_FULL_PERCENT": "100",
    "REPUT_JANITOR_DISK_MAX_USED_PERCENT": "100",
    "REPUT_JANITOR_DISK_FORCIBLE_PERCENT": "100",
    "REPUT_JANITOR_DISK_FULL_PERCENT": "100",
}
"""A store that runs for minutes may use all free space, even of a nearly full disk; the reserve stays."""


class ServiceFailed(RuntimeError):
    """A service has ended, or did not serve in time."""


def reput(directory: Path, arguments: Sequence[str], **variables: str) -> str:
    """Runs a command of `reput` in a directory. Returns its output. Raises ServiceFailed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "cli.main", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceFailed(f"reput {arguments[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


@dataclass(slots=True)
class Cluster:
    """The services of a store over a data directory, on loopback. Services without a port are left out."""

    data_dir: Path
    log_dir: Path
    ports: Mapping[str, int] = field(default_factory=lambda: free_ports(SERVICES))
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """More settings of a service, from its next start on."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        try:
            self.start_all()
            self.wait_all_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def target(self, service: str) -> str:
        """Returns the address of a service."""
        return f"127.0.0.1:{self.ports[service]}"

    def start_all(self) -> None:
        """Starts all services and does not wait for them."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        for service in self.ports:
            self.start(service)

    def wait_all_serving(self) -> None:
        """Waits until all serve. Raises ServiceFailed."""
        for service in self.ports:
            self.wait_serving(service)

    def start(self, service: str) -> None:
        """Starts a service and does not wait for it."""
        settings = {"port": str(self.ports[service]), "metrics-port": "0", "log-format": "json"}
        if service not in ("delivery", "gateway"):
            settings["data-dir"] = str(self.data_dir)
        if service != "commitlog" and "commitlog" in self.ports:
            settings["commitlog-target"] = self.target("commitlog")
        if service in ("janitor", "delivery"):
            settings["indexer-target"] = self.target("indexer")
        settings |= self.settings.get(service, {})
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with (self.log_dir / f"{service}.log").open("ab") as log:
            # Its own session: Ctrl-C reaches only the demo, which then stops the services in order.
            self.processes[service] = subprocess.Popen(
                [sys.executable, "-m", f"services.{service}", *flags],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_serving(self, service: str) -> float:
        """Waits until a service's health is SERVING. Returns the seconds of the wait. Raises ServiceFailed."""
        started = time.monotonic()
        with grpc.insecure_channel(self.target(service), NO_PROXY) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            while time.monotonic() - started < START_TIMEOUT_S:
                code = self.processes[service].poll()
                if code is not None:
                    raise ServiceFailed(f"{service} ended with exit code {code}\n{self.log_end(service)}")
                try:
                    status = health.Check(health_pb2.HealthCheckRequest(), timeout=CHECK_TIMEOUT_S).status
                except grpc.RpcError:
                    status = health_pb2.HealthCheckResponse.UNKNOWN
                if status == health_pb2.HealthCheckResponse.SERVING:
                    return time.monotonic() - started
                time.sleep(POLL_INTERVAL_S)
        raise ServiceFailed(f"{service} does not serve after {START_TIMEOUT_S:.0f} s\n{self.log_end(service)}")

    def log_end(self, service: str) -> str:
        """Returns the last lines of a service's log."""
        lines = (self.log_dir / f"{service}.log").read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES_SHOWN:])

    def kill(self, service: str) -> None:
        """Kills a service with SIGKILL, like a crash: it writes nothing more."""
        self.processes[service].kill()
        self.processes[service].wait()

    def restart(self, service: str) -> float:
        """Starts a service again. Returns the seconds until it served. Raises ServiceFailed."""
        self.start(service)
        return self.wait_serving(service)

    def stop(self) -> None:
        """Stops the running services, in the order that lets each service finish."""
        for service in reversed(list(self.ports)):
            self.stop_service(service)

    def stop_service(self, service: str) -> None:
        """Stops a service in order if it runs, and kills it if it does not end."""
        process = self.processes.pop(service, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(names: Sequence[str]) -> dict[str, int]:
    """Returns a free port for each name. All are held until all are found, so that they differ."""
    ports: dict[str, int] = {}
    with contextlib.ExitStack() as holders:
        while len(ports) < len(names):
            holder, port = holders.enter_context(socket.socket()), random.randrange(*PORTS)
            with contextlib.suppress(OSError):
                holder.bind(("127.0.0.1", port))
                ports[names[len(ports)]] = port
    return ports


def forget_settings() -> None:
    """Removes the settings of another store from the environment of this process and its children.

    Services of this store accept a nearly full disk.
    """
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        del os.environ[name]
    os.environ.update(ANY_DISK)
