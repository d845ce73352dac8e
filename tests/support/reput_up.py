# SPDX-License-Identifier: Apache-2.0
"""A whole store as processes for end-to-end tests: `reput up` on free ports, and commands against it."""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from cli.main import main
from tests.support.patience import LIMIT_S
from tests.support.surroundings import ANY_DISK, free_port, interrupt_by_default

REPUT = (sys.executable, "-m", "cli.main")
SEGMENT_SIZE_BYTES = 1 << 20
FREE_PORTS = (
    "--commitlog-port", "0", "--indexer-port", "0", "--janitor-port", "0",
    "--no-delivery", "--no-metrics", "--no-console", "--no-gateway",
)  # fmt: skip
SOON_SYNCED = {"REPUT_INDEXER_FLUSH_THOROUGH_INTERVAL_MS": "1000"}
"""The Indexer syncs all of its files each second instead of each minute: then segments may be deleted."""
WITH_GATEWAY = ("--delivery", "--delivery-port", "0", "--gateway", "--gateway-port", "0")
"""Flags, after FREE_PORTS, for a store with a gateway, which needs Delivery."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of Reput, with small segments, soon synced, any disk, and `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    small = {"REPUT_COMMITLOG_SEGMENT_SIZE_BYTES": str(SEGMENT_SIZE_BYTES)}
    return {**kept, **ANY_DISK, **small, **SOON_SYNCED, **(extra or {})}


@dataclass(frozen=True)
class Result:
    """The result of a command."""

    code: int
    output: str
    errors: str

    @property
    def rows(self) -> list[Any]:
        """The standard output as JSON lines."""
        return [json.loads(line) for line in self.output.splitlines()]


@dataclass
class Store:
    """A running store. `targets` maps a service to host:port."""

    process: subprocess.Popen[str]
    data_dir: Path
    targets: dict[str, str]
    log: Path
    """The file of its standard error. A pipe that is not read would be full at some time, and the store stand still."""
    door: str = ""
    """The address of the gateway. Empty without one."""

    def run(self, *arguments: str, standard_input: str | None = None) -> Result:
        """Run a command against the store, inside this process, a hundred times faster than in a new process."""
        return run_here(*arguments, standard_input=standard_input, extra=self.client_environment())

    def client_environment(self) -> dict[str, str]:
        """Return the variables that point a client at the store."""
        return {f"REPUT_CLIENT_{name.upper()}_TARGET": target for name, target in self.targets.items()}

    def json(self, *arguments: str, standard_input: str | None = None) -> list[Any]:
        """Run a command with --json, expect success, and return the printed rows."""
        result = self.run(*arguments, "--json", standard_input=standard_input)
        assert result.code == 0, result
        return result.rows

    def child(self, service: str, port: str = "") -> int:
        """The process id of a service. With `port`, the process id of the service at this port."""
        which = f"{service} .*--port {port} " if port else f"{service} "
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", f"cli.commands.spawned {self.process.pid} {which}"],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(found.stdout)

    def wait_for_line(self, text: str) -> str:
        """Wait until a line of the log contains `text`, and return the line. Fails when the store ends before it."""
        end_s = time.monotonic() + LIMIT_S
        while True:
            has_ended = self.process.poll() is not None
            lines = [line for line in self.log.read_text().splitlines() if text in line]
            if lines:
                return lines[0]
            is_hopeless = has_ended or time.monotonic() >= end_s
            assert not is_hopeless, f"{text!r} is not in {self.log.read_text()[-4000:]}"
            time.sleep(0.02)

    def stop(self) -> Result:
        """Stop it as Ctrl-C does, and return its result."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=LIMIT_S)
        return Result(self.process.returncode, output, self.log.read_text())


def run_here(*arguments: str, standard_input: str | None = None, extra: Mapping[str, str] | None = None) -> Result:
    """Run a command to its end inside this process, with its own streams and environment."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    input_bytes = io.BytesIO((standard_input or "").encode(errors="surrogateescape"))
    with (
        mock.patch.dict(os.environ, environment(extra), clear=True),
        mock.patch.object(sys, "argv", ["reput", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(input_bytes, encoding="utf-8")),
        mock.patch.object(sys, "stdout", output),
        mock.patch.object(sys, "stderr", errors),
        mock.patch.object(os, "nice"),  # a priority ends with the process of a command
    ):
        try:
            code = main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    texts = [stream.buffer.getvalue().decode() for stream in (output, errors)]  # type: ignore[attr-defined]
    return Result(code, *texts)


def run(*arguments: str, standard_input: str | None = None, extra: Mapping[str, str] | None = None) -> Result:
    """Run a command to its end as a process of its own."""
    done = subprocess.run(
        [*REPUT, *arguments],
        input=standard_input,
        stdin=subprocess.DEVNULL if standard_input is None else None,
        capture_output=True,
        text=True,
        env=environment(extra),
        timeout=LIMIT_S,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def start(command: Sequence[str], extra: Mapping[str, str] | None = None, **streams: Any) -> subprocess.Popen[str]:
    """Start a command that SIGINT interrupts, even if the tests were started with SIGINT ignored."""
    with interrupt_by_default():
        return subprocess.Popen(command, text=True, env=environment(extra), **streams)


@contextmanager
def store(data_dir: Path, *arguments: str, extra: Mapping[str, str] | None = None) -> Iterator[Store]:
    """A store that is ready within the block and stopped after it."""
    command: Sequence[str] = [*REPUT, "up", "--data-dir", str(data_dir), *FREE_PORTS, "--json", *arguments]
    with (
        tempfile.NamedTemporaryFile(prefix="reput-log-") as errors,
        start(command, extra, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        log = Path(errors.name)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            ready = json.loads(line)
            targets = {name: ready[name] for name in ("commitlog", "indexer", "janitor", "delivery") if name in ready}
            yield Store(process, data_dir, targets, log, ready.get("gateway", ""))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT_S)


@contextmanager
def gateway(targets: Mapping[str, str], port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway with the APIs of a store: its address, and its process, which a test may kill."""
    target = f"127.0.0.1:{port or free_port()}"
    command = [*REPUT, "serve", "gateway", "--port", target.rpartition(":")[2], "--metrics-port", "0"]
    command += [text for service, where in targets.items() for text in (f"--{service}-target", where)]
    with start(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert run_here("health", "--target", target, "--wait", str(LIMIT_S)).code == 0
            yield target, process
        finally:
            process.kill()
