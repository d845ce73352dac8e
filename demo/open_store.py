# SPDX-License-Identifier: Apache-2.0
"""The end of the demo with KEEP=1: its store serves on, with a console, until Ctrl-C."""

import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from demo.cluster import POLL_INTERVAL_S, ROOT, START_TIMEOUT_S, STOP_TIMEOUT_S, Cluster, ServiceFailed, free_ports
from demo.report import Report

CONSOLE, PORT = "console", 7300


def keep_open(directory: Path, log_dir: Path, report: Report) -> None:
    """Serve the store of a directory with a console until Ctrl-C or SIGTERM. Raises ServiceFailed."""
    with Cluster(directory, log_dir) as cluster, console_of(cluster) as url:
        report.line(f"The console shows the store of the demo at {url} until Ctrl-C.")
        with suppress(KeyboardInterrupt):
            signal.pause()


@contextmanager
def console_of(cluster: Cluster) -> Iterator[str]:
    """Yields the address of a console of a running cluster. Raises ServiceFailed."""
    port = PORT if is_free(PORT) else free_ports([CONSOLE])[CONSOLE]
    flags = [part for name in cluster.ports for part in (f"--{name}-target", cluster.target(name))]
    flags += ["--delivery-target", "", "--port", str(port), "--metrics-port", "0", "--log-format", "json"]
    with (cluster.log_dir / f"{CONSOLE}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"services.{CONSOLE}", *flags],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    cluster.processes[CONSOLE] = process
    try:
        end_s = time.monotonic() + START_TIMEOUT_S
        while not is_serving(port):
            if process.poll() is not None or time.monotonic() > end_s:
                raise ServiceFailed(f"the console does not serve\n{cluster.log_end(CONSOLE)}")
            time.sleep(POLL_INTERVAL_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        cluster.stop_service(CONSOLE)


def is_free(port: int) -> bool:
    """Returns whether no process of this machine has a port."""
    with socket.socket() as holder, suppress(OSError):
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        return True
    return False


def is_serving(port: int) -> bool:
    """Returns whether a console serves at a port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STOP_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
