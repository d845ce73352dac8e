# SPDX-License-Identifier: Apache-2.0
"""VolatileDisk: a real ext4 or xfs on a block device that loses unflushed sectors when its power fails.

The device is nbdkit with our plugin, as a file by nbdfuse, as a loop device with direct I/O (without that the page
cache of the file would hide the volatile cache). Killing a process never shows a missing sync; this does. Invariants:
sectors that a flush covered survive; of the other sectors, any part survives. Mounts belong to the calling process
(`enter_own_mounts`). Needs root, FUSE, loop devices and the packages that `reason_not_to_run` names. Blocks.
"""

import contextlib
import mmap
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

PLUGIN = Path(__file__).with_name("plugin.py")
WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""The beginning of a command that is not to run longer than this process does."""
PROGRAMS = ("setpriv", "nbdkit", "nbdfuse", "fusermount3", "losetup", "mkfs.ext4", "mkfs.xfs", "eatmydata")
PACKAGES = "nbdkit nbdkit-plugin-python libnbd-bin fuse3 e2fsprogs xfsprogs eatmydata"
SIZE_BYTES = 512 << 20
"""The smallest that mkfs.xfs takes is 300 MiB; the image is sparse."""
WAIT_TIMEOUT_S = 60.0
UNMOUNT_TIMEOUT_S = 3.0
LOOK_S = 0.01
BLOCK_BYTES = 4096

FileSystem = Literal["ext4", "xfs"]


def reason_not_to_run() -> str:
    """Why no volatile disk can be made here; empty if nothing is known to be missing."""
    if os.geteuid() != 0:
        return "needs root, to mount file systems"
    if not Path("/dev/fuse").exists() or not Path("/dev/loop-control").exists():
        return "needs /dev/fuse and loop devices"
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return f"needs {', '.join(missing)}: apt-get install -y {PACKAGES}" if missing else ""


class VolatileDisk:
    """Mounted on `root` between `power_on` and `power_off`; the first `power_on` makes the file system."""

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        self.root = directory / "disk"
        self._file_system = file_system
        self._image = directory / "image"
        self._socket = directory / "socket"
        self._control = directory / "control"
        self._done = directory / "control.done"
        self._device_file = directory / "device"
        self._log = directory / "disk.log"
        self._servers: list[subprocess.Popen[bytes]] = []
        self._loop = ""

    def power_on(self) -> None:
        """Attach the image and mount it, which replays the journal."""
        is_new = not self._image.exists()
        for path in (self._socket, self._control, self._done):
            path.unlink(missing_ok=True)
        self.root.mkdir(exist_ok=True)
        self._device_file.touch()
        settings = (f"image={self._image}", f"size={SIZE_BYTES}", f"control={self._control}")
        self._serve("nbdkit", "-f", "-U", str(self._socket), "python", str(PLUGIN), *settings)
        _wait(self._is_served, "nbdkit")
        self._serve("nbdfuse", str(self._device_file), "--unix", str(self._socket))
        _wait(lambda: self._device_file.stat().st_size > 0, "nbdfuse")
        self._loop = _run("losetup", "--direct-io=on", "--find", "--show", str(self._device_file))
        if is_new:
            quiet = "-q" if self._file_system == "ext4" else "-f"
            _run(f"mkfs.{self._file_system}", quiet, self._loop)
        _run("mount", self._loop, str(self.root))

    def arm(self, *, after_write_count: int, keep: float, seed: int) -> None:
        """Let the power fail after so many more writes; each unflushed sector survives with this probability."""
        pending = self._control.with_suffix(".new")
        pending.write_text(f"{after_write_count} {keep} {seed}", encoding="ascii")
        pending.rename(self._control)

    @property
    def has_failed(self) -> bool:
        """Whether the power has failed since it was switched on."""
        return self._done.exists()

    def wait_failed(self, timeout_s: float) -> None:
        """Return when the power has failed, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not self.has_failed and time.monotonic() < deadline:
            time.sleep(LOOK_S)

    def fail_now(self, *, keep: float, seed: int) -> None:
        """Let the power fail at once, unless it has."""
        if self.has_failed:
            return
        self.arm(after_write_count=0, keep=keep, seed=seed)
        descriptor = os.open(self._loop, os.O_RDONLY | os.O_DIRECT)
        try:
            buffer = mmap.mmap(-1, BLOCK_BYTES)
            deadline = time.monotonic() + WAIT_TIMEOUT_S
            while not self.has_failed and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    os.preadv(descriptor, [buffer], 0)  # any request makes the disk look at its control file
        finally:
            os.close(descriptor)

    def lost_sectors(self) -> tuple[int, int]:
        """How many sectors were in the cache when the power failed, and how many of them were kept."""
        held, kept = self._done.read_text(encoding="ascii").split()
        return int(held), int(kept)

    def power_off(self) -> None:
        """Detach everything, without a flush if the power has failed. No caller may use the mount any more."""
        deadline = time.monotonic() + UNMOUNT_TIMEOUT_S
        while _fails("umount", str(self.root)) and self.root.is_mount():
            if time.monotonic() > deadline:
                _fails("umount", "-l", str(self.root))
                break
            time.sleep(LOOK_S)
        _fails("losetup", "-d", self._loop)
        _fails("fusermount3", "-uz", str(self._device_file))
        for server in reversed(self._servers):
            server.kill()
            server.wait()
        self._servers.clear()

    def _is_served(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0

    def _serve(self, *command: str) -> None:
        with self._log.open("ab") as log:
            server = subprocess.Popen(
                (*WITH_US, *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )  # in a session of its own, so that Ctrl-C leaves it to us
            self._servers.append(server)


def _wait(is_there: Callable[[], bool], name: str) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while not is_there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} did not come up; its log is disk.log")
        time.sleep(LOOK_S)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _fails(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode != 0
