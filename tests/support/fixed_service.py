# SPDX-License-Identifier: Apache-2.0
"""A service as a process on a fixed port, which can be killed and started again under its address."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.patience import LIMIT_S
from tests.support.surroundings import ANY_DISK, free_port

REPOSITORY = Path(__file__).resolve().parents[2]
WITHOUT_FILES = ("delivery", "gateway", "console")


class FixedService:
    """`python -m services.<name>`. Standard error goes to a file beside the data directory."""

    wrapper: Sequence[str] = ()
    """A command that runs the command behind it in its place."""

    def __init__(self, name: str, data_dir: Path, *flags: str) -> None:
        self.name = name
        self.data_dir = data_dir
        self.port = free_port()
        self.target = f"127.0.0.1:{self.port}"
        self.kill_count = 0
        self._flags = flags
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> "FixedService":
        """Start it and wait until it serves."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        files = [] if self.name in WITHOUT_FILES else ["--data-dir", str(self.data_dir)]
        command = [*self.wrapper, sys.executable, "-m", f"services.{self.name}", *files]
        with Path(f"{self.data_dir}.{self.name}.log").open("ab") as log:
            self._child = subprocess.Popen(
                [*command, "--port", str(self.port), "--metrics-port", "0", *self._flags],
                cwd=REPOSITORY,
                env={**kept, **ANY_DISK},
                stderr=log,
            )
        self._wait_serving()
        return self

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._child is not None
        return self._child.pid

    def kill(self) -> None:
        """Send SIGKILL, and start it again."""
        self._end(signal.SIGKILL)
        self.kill_count += 1
        self.start()

    def stop(self) -> None:
        """Stop it in order. May be repeated."""
        if self._child is not None:
            self._end(signal.SIGTERM)

    def _end(self, signal_number: int) -> None:
        assert self._child is not None
        self._child.send_signal(signal_number)
        self._child.wait(LIMIT_S)
        self._child = None

    def _wait_serving(self) -> None:
        end_s = time.monotonic() + LIMIT_S
        with grpc.insecure_channel(self.target, [("grpc.enable_http_proxy", 0)]) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            while True:
                try:
                    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=5, wait_for_ready=True)
                except grpc.RpcError:
                    answer = None
                if answer is not None and answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                assert self._child is not None
                assert self._child.poll() is None, f"the {self.name} ended with {self._child.returncode}"
                assert time.monotonic() < end_s, f"the {self.name} does not serve"
                time.sleep(0.05)
