# SPDX-License-Identifier: Apache-2.0
"""SmallDisk: a real file system of a few MiB that a test may fill up, or let die with all unsynced data.

tmpfs, or ext4 on a loop device. `die` is the ioctl that stops an ext4 without writing its journal: from then on every
sync and write gives EIO, and after the next `revive` only data that was synced, or happened to be written back, is
there. Mounts are made in a mount namespace of the process, so they end with it. Needs root; `reason_not_to_mount`
tells.
"""

import contextlib
import ctypes
import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Literal

CLONE_NEWNS = 0x20000  # linux/sched.h
MS_REC, MS_PRIVATE = 0x4000, 0x40000  # linux/mount.h
EXT4_IOC_SHUTDOWN = 0x8004587D  # fs/ext4/ext4.h
NO_LOG_FLUSH = struct.pack("I", 2)
CHUNK_SIZES_BYTES = (1 << 16, 1 << 12, 1)

Kind = Literal["tmpfs", "ext4"]


def enter_own_mounts() -> None:
    """Give this process, and the processes that it will start, mounts of their own.

    Raises OSError without the right.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for result in (libc.unshare(CLONE_NEWNS), libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)):
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def reason_not_to_mount() -> str:
    """Why no small disk can be made here; empty if it can. Asked in a process of its own."""
    program = (
        "import tempfile, pathlib; from tests.crash.fault import small_disk as s; s.enter_own_mounts()\n"
        "with tempfile.TemporaryDirectory() as d:\n"
        " for kind in ('tmpfs', 'ext4'):\n"
        "  s.SmallDisk(pathlib.Path(d), kind, 1 << 23).unmount()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


class SmallDisk:
    """A file system mounted on `directory / "disk"` until `unmount`."""

    def __init__(self, directory: Path, kind: Kind, size_bytes: int) -> None:
        self.kind = kind
        self.root = directory / "disk"
        self._size_bytes = size_bytes
        self._image = directory / "image"
        self._ballast = self.root / "ballast"
        self.root.mkdir(exist_ok=True)
        if kind == "ext4":
            with self._image.open("wb") as image:
                image.truncate(size_bytes)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._mount()

    def fill(self, spare_bytes: int) -> None:
        """Take all free space but about so many bytes."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in CHUNK_SIZES_BYTES:
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(b"\xff" * size)
            ballast.truncate(max(ballast.tell() - spare_bytes, 0))

    def free(self) -> None:
        """Give back the space that `fill` took."""
        self._ballast.unlink(missing_ok=True)

    def die(self) -> None:
        """Stop the ext4 as it is on its device."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def revive(self) -> None:
        """Mount the device again. No caller may use the old mount any more."""
        self.unmount()
        self._mount()

    def unmount(self) -> None:
        """End it."""
        _run("umount", str(self.root))

    def _mount(self) -> None:
        if self.kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "reput-test", str(self.root))
        else:
            _run("mount", "-o", "loop", str(self._image), str(self.root))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
