# SPDX-License-Identifier: Apache-2.0
"""The conditions of the numbers: the machine, the revision, the versions."""

import mmap
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
from reput_client.core import speedups

TOUCHED_MIB = 512


def machine(data_dir: Path) -> dict[str, object]:
    """Return facts for the report. `data_dir` is where the measured systems keep their files."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": revision(),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_client": "with its compiled parts" if speedups.IS_COMPILED else "without its compiled parts",
        "file_system": file_system(data_dir),
        "free_disk_gib": round(psutil.disk_usage(str(data_dir)).free / (1 << 30), 1),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
        "fresh_memory_ms_per_mib": round(fresh_memory_ms_per_mib(), 3),
    }


def fresh_memory_ms_per_mib() -> float:
    """Return the cost of the first touch of memory: milliseconds on a virtual machine whose host reclaims free pages.

    A system that appends needs fresh pages for all bytes that it writes, so no system can be faster than that.
    """
    with mmap.mmap(-1, TOUCHED_MIB << 20) as fresh:
        piece = bytes(b"x" * (1 << 20))
        start_s = time.perf_counter()
        for position in range(0, len(fresh), len(piece)):
            fresh[position : position + len(piece)] = piece
        return (time.perf_counter() - start_s) * 1_000 / TOUCHED_MIB


def revision() -> str:
    """Return the git revision, and whether the tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def cpu_model() -> str:
    """Return the processor's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def file_system(path: Path) -> str:
    """Return type and options of the file system that holds a path."""
    mounts = [mount for mount in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(mount.mountpoint)]
    if not mounts:
        return "unknown"
    found = max(mounts, key=lambda mount: len(mount.mountpoint))
    return f"{found.fstype} ({found.opts})"
