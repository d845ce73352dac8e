# SPDX-License-Identifier: Apache-2.0
"""All services as processes with small files, and their measurements from outside."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from reput_server.probe import check_page

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

MIB = 1 << 20
PEERS = {
    "commitlog": (),
    "indexer": ("commitlog",),
    "janitor": ("commitlog", "indexer"),
    "delivery": ("commitlog", "indexer"),
    "gateway": ("commitlog", "indexer", "janitor", "delivery"),
}
"""Each service, and the services that it calls."""
FLAGS = {
    "commitlog": ["--segment-size-bytes", str(128 * MIB)],
    "indexer": ["--index-slot-count", "100000", "--index-entry-capacity", "600000"],
    "janitor": ["--check-interval-ms", "60000"],
    "delivery": [],
    "gateway": ["--auto-create-topics=true"],
}
CONSOLE, CONSOLE_PEERS, LOGIN_TOKEN = "console", ("commitlog", "indexer", "janitor", "delivery"), "a-readers-token"
GREEDY_TOKEN, GREEDY_CALLS_PER_S = "greedy-token", 200
RIGHTS = f"""
[[subjects]]
name = "greedy"
token_sha256 = ["{hashlib.sha256(GREEDY_TOKEN.encode()).hexdigest()}"]
calls_per_s_max = {GREEDY_CALLS_PER_S}

[[rules]]
subjects = ["*", "anonymous"]
allow = ["produce", "consume", "query", "administer"]
topics = ["*"]
groups = ["*"]
store = true
"""
"""A greedy subject with a quota, and honest callers without one, with the same rights."""
TRACEBACK = "Traceback (most recent call last)"


class Watched(FixedService):
    """A service whose memory, threads and metrics are looked at."""

    def __init__(self, name: str, data_dir: Path, *flags: str, file_count: int = 0) -> None:
        self.metrics_port = free_port()
        if file_count:
            self.wrapper = ["prlimit", f"--nofile={file_count}:{file_count}"]
        super().__init__(name, data_dir, "--metrics-port", str(self.metrics_port), *flags)

    def reset_peak(self) -> None:
        """Begin a new peak of memory."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def memory_mib(self) -> float:
        """Anonymous memory now, without the page cache, which a container gives back by itself."""
        return self._status_kib("RssAnon") / 1024

    def peak_mib(self) -> float:
        """The highest of all memory since `reset_peak`, less the file pages that are there now."""
        return (self._status_kib("VmHWM") - self._status_kib("RssFile")) / 1024

    def thread_count(self) -> int:
        """Threads of the process."""
        return self._status_kib("Threads")

    def metrics(self) -> str:
        """The page of the Prometheus endpoint."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as page:
            text: str = page.read().decode()
            return text

    def pause_ms(self) -> float:
        """The longest pause of its loop since the start."""
        return self._loop_ms("longest_pause_since_start")

    def work_ms(self) -> float:
        """The longest computation of its loop in a pause since the start."""
        return self._loop_ms("longest_work_since_start")

    def _loop_ms(self, field: str) -> float:
        match = re.search(rf"^reput_\w+_loop_{field}_seconds(?:{{.*}})? (\S+)$", self.metrics(), re.MULTILINE)
        assert match, field
        return float(match[1]) * 1000

    def log_text(self) -> str:
        """Its output on standard error."""
        return Path(f"{self.data_dir}.{self.name}.log").read_text(errors="replace")

    def _status_kib(self, field: str) -> int:
        match = re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert match, field
        return int(match[1])


class WatchedConsole(Watched):
    """The console, which has no gRPC."""

    def _wait_serving(self) -> None:
        end_s = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(OSError):
                if not check_page(self.target):
                    return
            assert time.monotonic() < end_s, "the console does not serve"
            time.sleep(0.05)


class Stack:
    """The services by name; the console only where it is attacked."""

    def __init__(
        self, directory: Path, *, file_count: int = 0, has_rights: bool = False, has_console: bool = False
    ) -> None:
        data_dir, rights, tokens = directory / "data", directory / "rights.toml", directory / "login"
        rights.write_text(RIGHTS)
        tokens.write_text(LOGIN_TOKEN)
        tokens.chmod(0o600)
        more = ["--rights-file", str(rights)] if has_rights else []
        self.services: dict[str, Watched] = {}
        for name, peers in PEERS.items():
            targets = [flag for peer in peers for flag in (f"--{peer}-target", self.services[peer].target)]
            self.services[name] = Watched(name, data_dir, *targets, *FLAGS[name], *more, file_count=file_count)
        if has_console:
            targets = [flag for peer in CONSOLE_PEERS for flag in (f"--{peer}-target", self.services[peer].target)]
            self.services[CONSOLE] = WatchedConsole(CONSOLE, data_dir, *targets, "--login-token-file", str(tokens))

    @property
    def targets(self) -> dict[str, str]:
        """Addresses by service, and of the metrics as NAME-metrics."""
        metrics = {f"{name}-metrics": f"127.0.0.1:{one.metrics_port}" for name, one in self.services.items()}
        return {name: one.target for name, one in self.services.items()} | metrics

    def pauses_ms(self) -> dict[str, float]:
        """The longest pause of each service's loop since its start."""
        return {name: service.pause_ms() for name, service in self.services.items()}

    def works_ms(self) -> dict[str, float]:
        """The longest computation of each service's loop in a pause since its start."""
        return {name: service.work_ms() for name, service in self.services.items()}

    def tracebacks(self) -> list[str]:
        """The services whose log has a traceback, which is a bug with any client."""
        return [
            f"traceback in the log of the {name}" for name, one in self.services.items() if TRACEBACK in one.log_text()
        ]


@contextlib.contextmanager
def running(
    directory: Path, *, file_count: int = 0, has_rights: bool = False, has_console: bool = False
) -> Iterator[Stack]:
    """Run the services for the time of a block, each with so many files if that is above 0."""
    stack = Stack(directory, file_count=file_count, has_rights=has_rights, has_console=has_console)
    try:
        for service in stack.services.values():
            service.start()
        yield stack
    finally:
        for service in reversed(stack.services.values()):
            service.stop()
