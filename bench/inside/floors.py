# SPDX-License-Identifier: Apache-2.0
"""The lower bounds on this machine: an RPC that does nothing, and bare writes with fdatasync."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from reput_client import connect

from bench.inside import filling
from bench.peers.peer import Durability, Operation, Serving, run_load
from bench.results import Figures
from bench.store import front_alone, running

FILE_SIZE_BYTES = 4 << 30


def unary(caller_count: int, call_count: int) -> Callable[[Path, Durability, float], Figures]:
    """Measure calls of a front of ours whose handler is empty, by the load generator of the scenarios."""

    def measure(folder: Path, mode: Durability, seconds: float) -> Figures:
        del folder, seconds
        words = {"body": 1024, "callers": caller_count, "calls": call_count, "durability": mode}
        with front_alone("http2") as (target, pid):
            serving = Serving(target, (pid,), (sys.executable, "-m", "bench.load"), {})
            done = run_load(serving, "latency", words)
        latencies = done["latencies_ms"]
        assert isinstance(latencies, dict)
        return {"messages_per_s": filling.rate(done), **{f"{name}_ms": value for name, value in latencies.items()}}

    return measure


def sync(operation: Operation, arguments: dict[str, object]) -> Callable[[Path, Durability, float], Figures]:
    """Run a load that syncs, then bare writes with fdatasync, each write as large as a sync of the load."""

    def measure(folder: Path, mode: Durability, seconds: float) -> Figures:
        words = arguments | ({"seconds": seconds} if operation == "append" else {})
        with running(folder, mode) as store:
            done = filling.load(store, operation, words)
            with connect(commitlog=store.commitlog) as client:
                status = client.admin.commitlog_status()
        per_sync = status.appended_message_count / status.sync_count
        record_size_bytes = status.max_physical_offset / status.appended_message_count
        bare_per_s = per_sync * bare_syncs_per_s(folder / "bare", round(per_sync * record_size_bytes), seconds)
        return {
            "messages_per_s": filling.rate(done),
            "messages_per_sync": per_sync,
            "bare_messages_per_s": bare_per_s,
            "share_of_bare": filling.rate(done) / bare_per_s,
        }

    return measure


def bare_syncs_per_s(path: Path, write_size_bytes: int, seconds: float) -> float:
    """Write at the end of a preallocated file, each write synced before the next write begins. Returns the rate."""
    data = bytes(write_size_bytes)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(descriptor, 0, FILE_SIZE_BYTES)
        os.fsync(descriptor)
        count = position = 0
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < seconds and position + write_size_bytes <= FILE_SIZE_BYTES:
            position += os.pwrite(descriptor, data, position)
            os.fdatasync(descriptor)
            count += 1
        return count / (time.perf_counter() - start_s)
    finally:
        os.close(descriptor)
        path.unlink()
