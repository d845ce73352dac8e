# SPDX-License-Identifier: Apache-2.0
"""A disk with a volatile write cache, as a Python plugin of nbdkit: `nbdkit python plugin.py image=… size=… control=…`.

Writes are in the cache, sector by sector, until a flush; a flush writes the cache into the image file. When the file
`control` appears (a line: writes to let pass, share of sectors to keep, seed), the power fails after so many writes: of
the cache a random share reaches the image, so writes come back torn and out of order, the rest is gone, and from then
on every request fails. The file `control`.done then tells how many sectors were in the cache and how many of them were
kept. A second control file takes the place of the first. Runs in nbdkit's own interpreter, so it imports nothing but
the standard library.
"""

import errno
import os
import random
from pathlib import Path

import nbdkit  # type: ignore[import-not-found]

API_VERSION = 2
SECTOR_BYTES = 512
OWN_FILE_MODE = 0o600


class Disk:
    """The image, the cache above it, and how long the power lasts."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.size_bytes = 0
        self.image = -1
        self.cache: dict[int, bytes] = {}
        self.is_dead = False
        self.writes_left: int | None = None
        self.keep, self.seed = 0.0, 0

    def look(self) -> None:
        """Obey the control file, then refuse all requests of a disk without power."""
        control = Path(self.settings["control"])
        if control.exists():
            writes, keep, seed = control.read_text(encoding="ascii").split()
            control.unlink()
            self.writes_left, self.keep, self.seed = int(writes), float(keep), int(seed)
        if self.writes_left is not None and self.writes_left <= 0 and not self.is_dead:
            self.fail()
        if self.is_dead:
            nbdkit.set_error(errno.EIO)
            raise OSError(errno.EIO, "the power is off")

    def fail(self) -> None:
        """Lose power."""
        chance = random.Random(self.seed)
        kept = [sector for sector in self.cache if chance.random() < self.keep]
        for sector in kept:
            os.pwrite(self.image, self.cache[sector], sector * SECTOR_BYTES)
        self.is_dead = True
        news = Path(self.settings["control"] + ".done.new")
        news.write_text(f"{len(self.cache)} {len(kept)}", encoding="ascii")
        news.rename(self.settings["control"] + ".done")
        self.cache.clear()


DISK = Disk()


def config(key: str, value: str) -> None:
    """Take a setting."""
    DISK.settings[key] = value


def thread_model() -> int:
    """A single request at a time."""
    return int(nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS)


def get_ready() -> None:
    """Open the image, which is made when missing."""
    DISK.size_bytes = int(DISK.settings["size"])
    DISK.image = os.open(DISK.settings["image"], os.O_RDWR | os.O_CREAT, OWN_FILE_MODE)
    os.ftruncate(DISK.image, DISK.size_bytes)


def open(_readonly: bool) -> int:  # noqa: A001 - the name that nbdkit calls
    """Begin a connection."""
    return 1


def get_size(_handle: int) -> int:
    """Size in bytes."""
    return DISK.size_bytes


def can_write(_handle: int) -> bool:
    """Writes are taken."""
    return True


def can_flush(_handle: int) -> bool:
    """Flushes are honoured."""
    return True


def pread(_handle: int, buffer: bytearray, offset: int, _flags: int) -> None:
    """Read, the cache before the image."""
    DISK.look()
    found = bytearray(os.pread(DISK.image, len(buffer), offset))
    first = offset // SECTOR_BYTES
    for index in range(len(buffer) // SECTOR_BYTES):
        cached = DISK.cache.get(first + index)
        if cached is not None:
            found[index * SECTOR_BYTES : (index + 1) * SECTOR_BYTES] = cached
    buffer[:] = found


def pwrite(_handle: int, buffer: bytes, offset: int, _flags: int) -> None:
    """Write into the cache; always whole sectors, as the loop device has them."""
    DISK.look()
    first = offset // SECTOR_BYTES
    for index in range(len(buffer) // SECTOR_BYTES):
        DISK.cache[first + index] = bytes(buffer[index * SECTOR_BYTES : (index + 1) * SECTOR_BYTES])
    if DISK.writes_left is not None:
        DISK.writes_left -= 1


def flush(_handle: int, _flags: int) -> None:
    """Write the cache into the image."""
    DISK.look()
    for sector, data in DISK.cache.items():
        os.pwrite(DISK.image, data, sector * SECTOR_BYTES)
    DISK.cache.clear()
