# SPDX-License-Identifier: Apache-2.0
"""Processor time of a leader and its followers for a message, with and without the scan that they share.

`python -m bench.inside.copying` starts three replicas on this machine several times, in turns with both ways, appends
the same number of messages each time, and prints the least time of each. Without the shared scan the tails of a
follower read its records again: no chunk is large enough for them (`dispatch_size_bytes_min`).
A copy of a page into fresh memory of a virtual machine is a time of the system, which depends on the host. So the time
of the user is printed apart.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import uvloop
from reput_client import connect

from bench.batches import NumberedBatches
from bench.load import streams
from bench.load.durabilities import DURABILITIES
from bench.peers.peer import Durability
from bench.store import Store, replicated

BODY_SIZE_BYTES = 1_024
BATCH_SIZE_BYTES = 1 << 20
REPLICA_COUNT = 3
WARM_UP_COUNT = 30_000
SECONDS_MAX = 600
SETTLE_S = 1.5
"""Time for the tails, after the followers have all records."""
POLL_S = 0.02
WAYS: Mapping[str, Mapping[str, str]] = {
    "two scans": {"REPUT_COMMITLOG_DISPATCH_SIZE_BYTES_MIN": str(1 << 40)},
    "shared scan": {},
}
Times = dict[str, tuple[float, float]]
"""Seconds of the user and of the system, by part."""


def main() -> None:
    """Measure in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", choices=("async", "sync"), default="async")
    asked = parser.parse_args()
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(asked.rounds):
        for way, settings in WAYS.items():
            for part, times in measured(asked.mode, asked.messages, settings).items():
                found.setdefault((part, way), []).append(times)
    print("| part | way | user µs a message | system µs a message |\n|---|---|---:|---:|")
    for (part, way), rounds in sorted(found.items()):
        user_s, system_s = (min(times) for times in zip(*rounds, strict=True))
        print(f"| {part} | {way} | {user_s * 1e6:.2f} | {system_s * 1e6:.2f} |")


def measured(mode: Durability, message_count: int, settings: Mapping[str, str]) -> Times:
    """Return the processor time of each part for a message: leader, follower, and their Indexers."""
    with tempfile.TemporaryDirectory() as name, replicated(Path(name), mode, REPLICA_COUNT, **settings) as store:
        _append(store, WARM_UP_COUNT)
        before = _times(store)
        done_count = _append(store, message_count)
        after = _times(store)
    return {
        part: ((after[part][0] - before[part][0]) / done_count, (after[part][1] - before[part][1]) / done_count)
        for part in before
    }


def _append(store: Store, message_count: int) -> int:
    """Append messages, and wait until all replicas have indexed them. Returns how many."""
    source = NumberedBatches(
        body_size_bytes=BODY_SIZE_BYTES, batch_size_bytes=BATCH_SIZE_BYTES, durability=DURABILITIES[store.mode]
    )
    done = uvloop.run(
        streams.append_stream(
            store.commitlog,
            source,
            SECONDS_MAX,
            durability=DURABILITIES[store.mode],
            message_count_max=message_count,
        )
    )
    with connect(commitlog=store.commitlog) as client:
        while True:
            status = client.admin.commitlog_status()
            end = status.max_physical_offset
            if all(replica.flushed_physical_offset >= end for replica in status.replicas):
                break
            time.sleep(POLL_S)
    time.sleep(SETTLE_S)
    return done.message_count


def _times(store: Store) -> Times:
    """Return the processor time so far of each part. Followers and Indexers are means."""
    port = int(store.commitlog.rpartition(":")[2])
    found: dict[str, list[tuple[float, float]]] = {}
    for process in map(psutil.Process, store.pids):
        words, times = process.cmdline(), process.cpu_times()
        if "commitlog" in words:
            is_leader = any(each.laddr.port == port for each in process.net_connections() if each.status == "LISTEN")
            found.setdefault("leader" if is_leader else "follower", []).append((times.user, times.system))
        elif "indexer" in words:
            found.setdefault("indexer", []).append((times.user, times.system))
    return {
        part: (sum(user_s for user_s, _ in times) / len(times), sum(system_s for _, system_s in times) / len(times))
        for part, times in found.items()
    }


if __name__ == "__main__":
    main()
