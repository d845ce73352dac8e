# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server for tests, from Debian's package: `apt-get install postgresql`."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

USERS = ("postgres", "nobody")
"""Users that stand in for root, as whom the server refuses to run."""


def programs() -> Path | None:
    """Return the folder of the server's programs, the newest, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    candidates = [*([Path(on_path).resolve()] if on_path else []), *found]
    return next((path.parent for path in reversed(candidates) if (path.parent / "initdb").exists()), None)


class PostgresServer:
    """A server on a directory of its own. `kill` ends it as a crash does, and `start` recovers."""

    def __init__(self) -> None:
        found = programs()
        if found is None:
            pytest.skip("no PostgreSQL server: apt-get install postgresql")
        self._programs, self._user = found, _user()
        self.directory = Path(tempfile.mkdtemp(prefix="reput-postgres-"))
        if self._user is not None:
            os.chown(self.directory, pwd.getpwnam(self._user).pw_uid, -1)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync")
        self.start()

    @property
    def data(self) -> Path:
        """The directory of its data."""
        return self.directory / "data"

    def url(self, name: str) -> str:
        """Return SQLAlchemy's URL of a database."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        log = (self.directory / "log").open("ab")
        self._process = subprocess.Popen(
            [
                self._programs / "postgres", "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1",
                "-c", f"unix_socket_directories={self.directory}", "-c", "shared_buffers=16MB",
            ],
            user=self._user, group=None, stdout=log, stderr=log, start_new_session=True, cwd=self.directory,
        )  # fmt: skip
        log.close()
        end_s = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(psycopg.Error):
                psycopg.connect(self._dsn("postgres"), connect_timeout=5).close()
                return
            assert self._process.poll() is None, (self.directory / "log").read_text()[-2000:]
            assert time.monotonic() < end_s, (self.directory / "log").read_text()[-2000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """End all its processes at once."""
        process, self._process = self._process, None
        if process is None:
            return
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait(LIMIT_S)
        psutil.wait_procs(children, LIMIT_S)

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def create(self, name: str, template: str = "template0") -> None:
        """Make a database, empty or as a copy of another."""
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')

    def drop(self, name: str) -> None:
        """Remove a database, with its connections."""
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def rename(self, name: str, to: str) -> None:
        """Give a database another name."""
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" RENAME TO "{to}"')

    def _dsn(self, name: str) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={name}"

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._programs / program, *arguments]
        done = subprocess.run(
            command, user=self._user, capture_output=True, text=True, check=False, cwd=self.directory, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr


def _user() -> str | None:
    """Return the user to run as, None for the present user."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in USERS if name in known)


def running() -> Iterator[PostgresServer]:
    """Yield a server, for a fixture."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()
