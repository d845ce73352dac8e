# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.backup`: the cost of a backup of a store that is appended to as fast as it can take it.

Slices of full load follow each other: a quiet slice, then a slice beside `reput backup create` with its default limit
of the rate, and so on. A backup has more to copy than a slice lasts. The figures are the messages per
second of each slice, and the median of the ratios of a slice beside a backup to the quiet slice before it. Exit code 1
if a backup failed, or the median is below what the documentation promises.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from reput.common.v1 import message_pb2
from rich.console import Console
from rich.progress import Progress

from bench import batches, machine, store
from bench.load import streams

BODY_SIZE_BYTES, BATCH_SIZE_BYTES = 1_024, 1 << 20
SEGMENT_SIZE_BYTES = 64 << 20
POLL_S = 0.02
RATIO_MIN = 0.9
"""Share of the quiet rate that docs/backup.md promises beside a backup."""

console = Console(stderr=True)


class BackupFailed(Exception):
    """`reput backup create` ended with an error, or had nothing to copy."""


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of a quiet slice and of a slice beside a backup."""

    quiet_messages_per_s: float
    backup_messages_per_s: float
    ratio: float
    backup_mib: float


async def load(served: store.Store, seconds: float) -> float:
    """Return the messages per second that a stream gets acknowledged."""
    source = batches.prebuilt(
        body_size_bytes=BODY_SIZE_BYTES,
        batch_size_bytes=BATCH_SIZE_BYTES,
        durability=message_pb2.DURABILITY_MEMORY,
        topics=[batches.TOPIC],
        variant_count=batches.VARIANT_COUNT,
    )
    done = await streams.append_stream(served.commitlog, source, seconds)
    return done.message_count / done.duration_s


def begin_backup(served: store.Store, place: Path) -> subprocess.Popen[str]:
    """Start a backup as an operator does."""
    targets = {"REPUT_CLIENT_COMMITLOG_TARGET": served.commitlog, "REPUT_CLIENT_INDEXER_TARGET": served.indexer}
    words = [store.REPUT, "backup", "create", "--to", str(place)]
    return subprocess.Popen(
        words, env=os.environ | targets, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def stop_backup(backup: subprocess.Popen[str]) -> None:
    """Kill a backup that still runs. Raises BackupFailed for any other end."""
    code = backup.poll()
    backup.kill()
    _, problem = backup.communicate()
    if code is not None:
        raise BackupFailed(f"the backup ended within the slice, exit code {code}: {problem[-500:]}")


def size_mib(place: Path) -> float:
    """Return the size of the objects at a place."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / (1 << 20)


def wait_copying(backup: subprocess.Popen[str], place: Path) -> None:
    """Wait until a backup copies segments: its start is short and is not what a backup costs."""
    while backup.poll() is None and not size_mib(place):
        time.sleep(POLL_S)


def measure(served: store.Store, place: Path, seconds: float) -> Round:
    """Measure a quiet slice and a slice beside a backup of the whole log to an empty place."""
    quiet = asyncio.run(load(served, seconds))
    backup = begin_backup(served, place)
    try:
        wait_copying(backup, place)
        before_mib = size_mib(place)
        beside = asyncio.run(load(served, seconds))
        written_mib = size_mib(place) - before_mib
    finally:
        stop_backup(backup)
        shutil.rmtree(place, ignore_errors=True)
    return Round(quiet, beside, beside / quiet, written_mib)


def rounds(served: store.Store, place: Path, count: int, seconds: float) -> list[Round]:
    """Run all rounds, after a warm-up that fills the first segments."""
    asyncio.run(load(served, seconds))
    with Progress(console=console) as progress:
        return [
            measure(served, place, seconds)
            for _ in progress.track(range(count), description="appending beside backups")
        ]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.backup", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="pairs of slices (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="length of a slice (default %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), metavar="DIR", help="where results go")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR", help="where data are kept"
    )
    chosen = parser.parse_args()
    facts = machine.machine(chosen.data)
    with (
        tempfile.TemporaryDirectory(prefix="reput-bench-", dir=chosen.data) as folder,
        store.running(Path(folder), "async", REPUT_COMMITLOG_SEGMENT_SIZE_BYTES=str(SEGMENT_SIZE_BYTES)) as served,
    ):
        found = rounds(served, Path(folder) / "backups", chosen.rounds, chosen.seconds)
    median = statistics.median(one.ratio for one in found)
    chosen.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": facts, "median_ratio": median, "rounds": [asdict(one) for one in found]}
    (chosen.out / "backup.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
    for one in found:
        print(
            f"{one.quiet_messages_per_s:,.0f} messages/s quiet, {one.backup_messages_per_s:,.0f} beside a backup that "
            f"wrote {one.backup_mib:,.0f} MiB: {one.ratio:.2f}"
        )
    print(f"median ratio {median:.2f}")
    return 1 if median < RATIO_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
