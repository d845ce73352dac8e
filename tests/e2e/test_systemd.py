# SPDX-License-Identifier: Apache-2.0
"""deploy/systemd: systemd accepts the unit.

The started services notify systemd that they are ready and alive.
"""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.forks import REPOSITORY
from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, run_here, store
from tests.support.surroundings import ANY_DISK, free_port

UNIT = REPOSITORY / "deploy" / "systemd" / "reput@.service"
CONSOLE = UNIT.with_name("reput-console.service")
PROGRAM, DATA_DIR = "/opt/reput/bin/reput", "/var/lib/reput/data"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(("file", "name"), [(UNIT, "reput@indexer.service"), (CONSOLE, CONSOLE.name)])
def test_the_units(tmp_path: Path, file: Path, name: str) -> None:
    """systemd accepts the units of the services and of the console with an existing program."""
    unit = tmp_path / name
    unit.write_text(file.read_text().replace(PROGRAM, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_backup(tmp_path: Path) -> None:
    """systemd accepts the unit and the timer of backups."""
    names = ("reput-backup.service", "reput-backup.timer")
    for name in names:
        (tmp_path / name).write_text(UNIT.with_name(name).read_text().replace(PROGRAM, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_backup_starts(tmp_path: Path) -> None:
    """The unit's own commands make a backup of a store, and prune."""
    lines = UNIT.with_name("reput-backup.service").read_text().splitlines()
    place = str(tmp_path / "place")
    with store(tmp_path / "data") as running:
        assert running.run("put", "orders", "x").code == 0
        for line in (line for line in lines if line.startswith("ExecStart=")):
            program, *words = shlex.split(line.partition("=")[2])
            assert program == PROGRAM
            done = running.run(*(place if word == "${BACKUP_PLACE}" else word for word in words))
            assert done.code == 0, done
    assert len(list((tmp_path / "place" / "backups").iterdir())) == 1


def test_what_the_console_starts(tmp_path: Path) -> None:
    """The console starts by its unit's command without any file of the store, and notifies systemd."""
    lines = CONSOLE.read_text().splitlines()
    program, *words = shlex.split(next(line for line in lines if line.startswith("ExecStart=")).partition("=")[2])
    assert program == PROGRAM
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(LIMIT_S)
        variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "HOME": "/nonexistent"}
        process = subprocess.Popen([*REPUT, *words, "--port", "0", "--metrics-port", "0"], env=os.environ | variables)
        try:
            assert heard.recv(100) == b"READY=1"
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0


def test_what_it_starts(tmp_path: Path) -> None:
    """Each service starts by the unit's own command, with a common directory for files, and they find each other."""
    lines = UNIT.read_text().replace(DATA_DIR, str(tmp_path / "data")).splitlines()
    line = next(line for line in lines if line.startswith("ExecStart="))
    own = dict(line.split("=", 2)[1:] for line in lines if line.startswith("Environment=REPUT_"))
    ports = {name: str(free_port()) for name in SERVICES}
    targets = {f"REPUT_{of}_{to}_TARGET": f"127.0.0.1:{ports[to.lower()]}" for of, to in PEERS}
    running: list[subprocess.Popen[bytes]] = []
    try:
        for name, port in ports.items():
            words = shlex.split(line.partition("=")[2].replace("%i", name))
            assert words[0] == PROGRAM
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
                heard.bind(str(tmp_path / name))
                heard.settimeout(LIMIT_S)
                flags = ("--port", port, "--metrics-port", "0")
                variables = {
                    "NOTIFY_SOCKET": str(tmp_path / name),
                    "XDG_STATE_HOME": str(tmp_path),
                    **own,
                    **targets,
                    **ANY_DISK,
                }
                running.append(subprocess.Popen([*REPUT, *words[1:], *flags], env=os.environ | variables))
                assert heard.recv(100) == b"READY=1"
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
    assert [process.wait(LIMIT_S) for process in running] == [0] * len(SERVICES)
    assert (tmp_path / "data" / "commitlog").is_dir()


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    """A running event loop notifies systemd's watchdog.

    A loop that hangs does not, and systemd's signal ends the process.

    The place where it hung is logged.
    """
    assert "WatchdogSec=120\n" in UNIT.read_text()
    watchdog_s = 2.0
    variables = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(round(watchdog_s * 1e6)),
        "XDG_STATE_HOME": str(tmp_path), "REPUT_FAILPOINTS": "append.before_write=sleep:600000", **ANY_DISK,
    }  # fmt: skip
    port = free_port()
    flags = ("--data-dir", str(tmp_path / "data"), "--port", str(port), "--metrics-port", "0")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(LIMIT_S)
        command = [*REPUT, "serve", "commitlog", *flags]
        process = subprocess.Popen(command, env=os.environ | variables, stderr=subprocess.PIPE)
        try:
            while heard.recv(100) != b"READY=1":
                pass
            for _ in range(4):
                assert heard.recv(100) == b"WATCHDOG=1"
            refused = run_here("--commitlog", f"127.0.0.1:{port}", "--timeout", "1", "put", "t", "x")
            assert refused.code != 0
            heard.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while heard.recv(100):
                    pass
            heard.settimeout(watchdog_s)
            with pytest.raises(TimeoutError):
                heard.recv(100)
            process.send_signal(signal.SIGABRT)
            _, told = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGABRT
    assert b"failpoints.py" in told


SERVICES = ("commitlog", "indexer", "janitor", "delivery", "gateway")
PEERS = (
    ("INDEXER", "COMMITLOG"), ("JANITOR", "COMMITLOG"), ("JANITOR", "INDEXER"),
    ("DELIVERY", "COMMITLOG"), ("DELIVERY", "INDEXER"), ("GATEWAY", "COMMITLOG"), ("GATEWAY", "DELIVERY"),
)  # fmt: skip
"""Pairs of a service and a peer whose address it needs. In an installation all are at their default ports."""
