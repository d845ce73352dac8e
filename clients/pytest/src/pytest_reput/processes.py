# SPDX-License-Identifier: Apache-2.0
"""ProcessReput: a store as processes, as in production: `reput up` on a directory of its own and free ports."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_reput.errors import FixtureError, NotStarted, ServerMissing
from pytest_reput.store import SERVICES, Reput

STOP_S = 60.0
LOG_SHOWN = 20
"""Last lines of the log that an error shows."""

SETTINGS = {
    "REPUT_COMMITLOG_SEGMENT_SIZE_BYTES": str(16 << 20),
    "REPUT_COMMITLOG_DISK_FULL_PERCENT": "100",
    "REPUT_JANITOR_DISK_MAX_USED_PERCENT": "100",
    "REPUT_JANITOR_DISK_FORCIBLE_PERCENT": "100",
    "REPUT_JANITOR_DISK_FULL_PERCENT": "100",
}
"""Small files, and no refusal because the disk of the tests is nearly full."""


class ProcessReput(Reput):
    """A store as processes. `directory` gets its data and the log of its services."""

    def __init__(self, directory: Path, *, start_timeout_s: float = 60.0) -> None:
        if find_spec("reput_server") is None:
            raise ServerMissing(ModuleNotFoundError("No module named 'reput_server'"))
        self.directory = directory
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[str] | None = None
        super().__init__(dict.fromkeys(SERVICES, "127.0.0.1:0"))
        self.start()

    def advance(self, *_: object, **__: object) -> None:
        """Processes have the machine's clock. Raises FixtureError."""
        raise FixtureError(
            "reput_processes has the machine's clock: a test that moves the clock uses the fixture reput"
        )

    def fail_next(self, *_: object, **__: object) -> None:
        """Nothing plans refusals of processes. Raises FixtureError."""
        raise FixtureError("reput_processes refuses nothing on demand: such a test uses the fixture reput")

    @property
    def is_running(self) -> bool:
        """See `Reput.is_running`."""
        return self._process is not None

    def start(self) -> None:
        """See `Reput.start`. Raises NotStarted."""
        ports = [
            part for name, target in self.targets.items() for part in (f"--{name}-port", target.rpartition(":")[2])
        ]
        command = [
            sys.executable, "-m", "reput_server", "up", "--data-dir", str(self.directory / "data"),
            *ports, "--no-metrics", "--no-console", "--no-gateway", "--json",
        ]  # fmt: skip
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        with (self.directory / "services.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**kept, **SETTINGS}, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        ready = self._first_line()
        self.targets.update({name: ready[name] for name in SERVICES})

    def _first_line(self) -> Any:
        """Return the line that tells the addresses."""
        assert self._process is not None
        assert self._process.stdout is not None
        found, _, _ = select.select([self._process.stdout], [], [], self._start_timeout_s)
        line = self._process.stdout.readline() if found else ""
        if line:
            return json.loads(line)
        self.kill()
        log = self.directory / "services.log"
        last = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_SHOWN:])
        raise NotStarted(f"`reput up` was not ready within {self._start_timeout_s:.0f} s; the end of {log}:\n{last}")

    def stop(self) -> None:
        """See `Reput.stop`. Services that do not stop are killed."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """See `Reput.kill`. Written data survive: it is the end of the processes, not of the machine."""
        process, self._process = self._process, None
        if process is None:
            return
        end_s = time.monotonic() + STOP_S
        while time.monotonic() < end_s:  # the group has the services, too
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            process.poll()
            time.sleep(0.01)
        process.wait(STOP_S)
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        """Close clients and services."""
        try:
            self.close_clients()
        finally:
            self.stop()
