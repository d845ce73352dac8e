# SPDX-License-Identifier: Apache-2.0
"""The seven harms that another program, a bad disk or a person does to a file.

Each takes a file and a source of chance, and harms it where it is, like a process beside the services: mappings see it
at once. The used part lies below the last byte that is not zero; it is all of the file if there is no such byte.
"""

import random
from collections.abc import Callable, Mapping
from pathlib import Path

LENGTHENED_BYTES = 100


def remove(path: Path, chance: random.Random) -> None:
    """The file is gone. A process that has it open keeps it."""
    path.unlink()


def empty(path: Path, chance: random.Random) -> None:
    """Nothing is in it."""
    _cut(path, 0)


def shorten(path: Path, chance: random.Random) -> None:
    """The second half of its bytes is gone."""
    _cut(path, path.stat().st_size // 2)


def zero(path: Path, chance: random.Random) -> None:
    """The middle third of the used part is zeros."""
    start, end = _middle(path)
    _write(path, start, bytes(end - start))


def scramble(path: Path, chance: random.Random) -> None:
    """The middle third of the used part is random."""
    start, end = _middle(path)
    _write(path, start, chance.randbytes(end - start))


def lengthen(path: Path, chance: random.Random) -> None:
    """Rubbish lies behind its end."""
    _write(path, path.stat().st_size, chance.randbytes(LENGTHENED_BYTES))


def replace(path: Path, chance: random.Random) -> None:
    """A directory has its name."""
    path.unlink()
    path.mkdir()


Harm = Callable[[Path, random.Random], None]

HARMS: Mapping[str, Harm] = {
    "removed": remove,
    "emptied": empty,
    "shortened": shorten,
    "zeros": zero,
    "random": scramble,
    "lengthened": lengthen,
    "directory": replace,
}


def _middle(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    used = len(data.rstrip(b"\0")) or len(data)
    return used // 3, max(2 * used // 3, min(used, used // 3 + 1))


def _cut(path: Path, size_bytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size_bytes)


def _write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
