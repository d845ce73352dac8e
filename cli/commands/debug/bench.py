# SPDX-License-Identifier: Apache-2.0
"""`reput bench DIR`: measures a disk in the way the log uses it, and says whether it is fit for a store.

Three measurements in a file of its own: appends of a batch with a sync after each, as a single writer that waits makes
them; a long write with a sync for each MiB, as many writers together make it; reads of records at random places, past
the page cache. The verdict looks at the syncs, because an acknowledgement waits for a sync.
"""

from __future__ import annotations

import mmap
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json, write
from cli.output.progress import Meter, progress
from libs.figures import duration_text, size_rate_text, size_text

MIB = 1 << 20
BATCH_BYTES = 4096
READ_BYTES = 4096
READ_COUNT = 2_000
SPARE = 2
"""The disk must have room for so many times the file."""


class Figures(NamedTuple):
    """What was measured. Times are in seconds."""

    sync_p50_s: float
    sync_p99_s: float
    sync_max_s: float
    appends_per_s: float
    write_bytes_per_s: float
    read_p50_s: float
    read_p99_s: float
    is_read_past_cache: bool


class Verdict(NamedTuple):
    """The fitness of a disk, and the reason."""

    word: str
    text: str


def verdict_of(figures: Figures) -> Verdict:
    """Return the verdict. Pure."""
    p99 = duration_text(figures.sync_p99_s)
    if figures.sync_p50_s < 20e-6:
        text = f"half of the syncs take {figures.sync_p50_s * 1e6:.0f} µs: no disk is so quick. They may do nothing"
        return Verdict("doubtful", f"{text} (a file system in memory, or a cache): a power cut loses data")
    if figures.sync_p99_s > 0.1:
        return Verdict("unfit", f"one sync in a hundred takes {p99} or more: appends wait as long")
    if figures.sync_p99_s > 0.02:
        return Verdict("slow", f"one sync in a hundred takes {p99} or more: fit for little load")
    return Verdict("fit", f"99 of 100 syncs take less than {p99}")


def bench(
    directory: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Directory on the disk.")],
    size_mib: Annotated[int, typer.Option("--size-mib", min=8, max=65_536, help="Size of the file.")] = 256,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="Time for single appends.")] = 5.0,
    as_json: JsonOption = False,
) -> None:
    """Measure a disk before it gets a store: appends with a sync each, a long write, and reads at random places.

    It writes a file of its own into the directory, and removes it, also after Ctrl-C. Stop the load on the disk first:
    the figures are those of this moment. Exit code 7 if the disk is unfit or its syncs are doubtful.

    Example: reput bench /var/lib/reput
    """
    figures = measured(directory, size_mib * MIB, seconds)
    verdict = verdict_of(figures)
    if as_json:
        print_json({"directory": str(directory), **figures._asdict(), "verdict": verdict.word, "text": verdict.text})
    else:
        cached = "" if figures.is_read_past_cache else ", out of the page cache: the figures are not those of the disk"
        write(
            f"{verdict.word}: {verdict.text}\n"
            f"append of {size_text(BATCH_BYTES)} with sync: {figures.appends_per_s:,.0f}/s; half take "
            f"{_time_text(figures.sync_p50_s)}, 99 % {_time_text(figures.sync_p99_s)}, all "
            f"{_time_text(figures.sync_max_s)} at most\n"
            f"long write, sync each MiB: {size_rate_text(figures.write_bytes_per_s)}\n"
            f"read of {size_text(READ_BYTES)}: half take {_time_text(figures.read_p50_s)}, 99 % "
            f"{_time_text(figures.read_p99_s)}{cached}\n"
        )
    if verdict.word in ("unfit", "doubtful"):
        raise typer.Exit(ExitCode.NOT_WELL)


def measured(directory: Path, size_bytes: int, seconds: float) -> Figures:
    """Measure with a file that no name leads to. Raises CommandFailed without room, and OSError."""
    space = os.statvfs(directory)
    free_bytes = space.f_bavail * space.f_frsize
    if free_bytes < SPARE * size_bytes:
        text = f"--size-mib is {size_bytes // MIB}, but {directory} has {size_text(free_bytes)} free, and twice the"
        raise CommandFailed("BAD_ARGUMENT", f"{text} size is needed", code=ExitCode.USAGE)
    handle, name = tempfile.mkstemp(prefix=".reput-bench-", dir=directory)
    try:
        Path(name).unlink()  # nothing is left, whatever ends this process
        os.posix_fallocate(handle, 0, size_bytes)
        os.fsync(handle)
        with progress("writing", size_bytes) as meter:
            begun_s = time.monotonic()
            _write_all(handle, size_bytes, meter)
            write_s = time.monotonic() - begun_s
        with progress("appending", round(seconds * 1000), "ms") as meter:
            syncs = _appends(handle, size_bytes, seconds, meter)
        reads, is_direct = _reads(handle, size_bytes)
    finally:
        os.close(handle)
        with suppress(OSError):
            Path(name).unlink()
    return Figures(
        _share(syncs, 0.5), _share(syncs, 0.99), max(syncs), len(syncs) / sum(syncs), size_bytes / write_s,
        _share(reads, 0.5), _share(reads, 0.99), is_direct,
    )  # fmt: skip


def _write_all(handle: int, size_bytes: int, meter: Meter) -> None:
    block = os.urandom(MIB)
    for position in range(0, size_bytes, MIB):
        os.pwrite(handle, block, position)
        os.fdatasync(handle)
        meter.show(position + MIB)


def _appends(handle: int, size_bytes: int, seconds: float, meter: Meter) -> list[float]:
    """Write a batch and sync it, again and again. Returns the time of each."""
    batch = os.urandom(BATCH_BYTES)

    def append(number: int) -> None:
        os.pwrite(handle, batch, number * BATCH_BYTES % size_bytes)
        os.fdatasync(handle)

    return _repeated(append, seconds, meter)


def _repeated(act: Callable[[int], None], seconds: float, meter: Meter) -> list[float]:
    times: list[float] = []
    begun_s = now_s = time.monotonic()
    while not times or now_s - begun_s < seconds:
        act(len(times))
        before_s, now_s = now_s, time.monotonic()
        times.append(now_s - before_s)
        meter.show(round((now_s - begun_s) * 1000))
    return times


def _reads(handle: int, size_bytes: int) -> tuple[list[float], bool]:
    """Read at random places, past the page cache if the file system can. Returns the times, and whether it can."""
    is_direct = True
    try:
        other = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECT)
    except OSError:
        other, is_direct = os.dup(handle), False
        os.posix_fadvise(other, 0, 0, os.POSIX_FADV_DONTNEED)
    chance = random.Random(size_bytes)  # noqa: S311 - places, no secrets
    times = []
    try:
        with mmap.mmap(-1, READ_BYTES) as room:
            for _ in range(READ_COUNT):
                position = chance.randrange(size_bytes // READ_BYTES) * READ_BYTES
                begun_s = time.monotonic()
                os.preadv(other, [room], position)
                times.append(time.monotonic() - begun_s)
    finally:
        os.close(other)
    return times, is_direct


def _share(times: Sequence[float], share: float) -> float:
    """Return the time within which this share of the times lies."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def _time_text(seconds: float) -> str:
    return duration_text(seconds) if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
