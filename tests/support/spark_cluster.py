# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster from the pip package: a master and workers as processes on this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pyspark

from tests.support.surroundings import free_port

HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 60.0


class SparkCluster:
    """A Spark cluster, used as a context. Workers have one core and 1 GiB each."""

    def __init__(self, directory: Path, worker_count: int = 2) -> None:
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.kill_count = 0
        self._directory = directory
        self._worker_count = worker_count
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        ports = ("--port", str(self.port), "--webui-port", "0")
        self._master = self._start("master.Master", "--host", "127.0.0.1", *ports)
        end_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < end_s, "the master does not listen"
            time.sleep(0.1)
        self._workers = [self._worker() for _ in range(self._worker_count)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._workers, self._master):
            assert process is not None
            self._end(process)

    def kill(self) -> None:
        """Send SIGKILL to a worker and its executors. A new worker takes its place."""
        self._end(self._workers.pop(0))
        self.kill_count += 1
        self._workers.append(self._worker())

    def _worker(self) -> subprocess.Popen[bytes]:
        resources = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self._directory / "work"))
        return self._start("worker.Worker", "--host", "127.0.0.1", *resources, self.url)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (self._directory / "cluster.log").open("ab") as log:
            return subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process and its executors, which are children in the same session."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
