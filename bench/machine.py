# SPDX-License-Identifier: Apache-2.0
"""What the numbers depend on: the machine, the revision, the versions."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import psutil


def machine(data_dir: Path) -> dict[str, object]:
    """Facts for the report; `data_dir` is where the measured systems keep their files."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": revision(),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": file_system(data_dir),
        "free_disk_gib": round(psutil.disk_usage(str(data_dir)).free / (1 << 30), 1),
        "load_average_before": list(os.getloadavg()),
    }


def revision() -> str:
    """The git revision, and whether the tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def cpu_model() -> str:
    """What the processor says of itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def file_system(path: Path) -> str:
    """Type and options of the file system that holds a path."""
    mounts = [mount for mount in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(mount.mountpoint)]
    if not mounts:
        return "unknown"
    found = max(mounts, key=lambda mount: len(mount.mountpoint))
    return f"{found.fstype} ({found.opts})"
