# SPDX-License-Identifier: Apache-2.0
"""A console as a process, and its answers."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Answer:
    """An answer of the console."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The answer as JSON."""
        return json.loads(self.text)


@dataclass(frozen=True)
class RunningConsole:
    """A console that serves."""

    port: int
    process: subprocess.Popen[Any]

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: str = "") -> Answer:
        """Send a request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, body or None, dict(headers or {}))
            found = connection.getresponse()
            named = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, named, found.read().decode("utf-8", "surrogateescape"))
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """Read a page."""
        return self.ask("GET", path, {name.replace("_", "-"): value for name, value in headers.items()})

    def json(self, path: str) -> Any:
        """Read the twin of a page, which must exist."""
        answer = self.get(path)
        assert answer.status == 200, answer
        return answer.json


def in_path(name: str) -> str:
    """Return a name as a part of an address."""
    return quote(name, safe="")


@contextlib.contextmanager
def console_of(targets: Mapping[str, str], *flags: str) -> Iterator[RunningConsole]:
    """A console of a store that serves within the block, and is stopped after it."""
    port = free_port()
    command = [sys.executable, "-m", "services.console", "--port", str(port), "--metrics-port", "0"]
    for name, target in (({} if "store" in targets else {"delivery": ""}) | dict(targets)).items():
        command += [f"--{name}-target", target]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    with subprocess.Popen([*command, *flags], cwd=REPOSITORY, env=kept, stderr=subprocess.PIPE) as process:
        console = RunningConsole(port, process)
        try:
            _wait_serving(console)
            yield console
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=LIMIT_S)
            assert b"Traceback" not in errors, errors.decode()


def _wait_serving(console: RunningConsole) -> None:
    end_s = time.monotonic() + LIMIT_S
    while True:
        assert console.process.poll() is None, console.process.communicate()
        with contextlib.suppress(OSError):
            if console.get("/healthz").status == 200:
                return
        assert time.monotonic() < end_s, "the console does not serve"
        time.sleep(0.05)
