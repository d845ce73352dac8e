# SPDX-License-Identifier: Apache-2.0
"""Stores with known content, and loads from a process of their own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import uvloop
from reput_client import connect

from bench.batches import NumberedBatches
from bench.load import reading, streams
from bench.load.durabilities import DURABILITIES
from bench.peers.peer import Operation, Serving, run_load
from bench.store import Store

BATCH_SIZE_BYTES = 1 << 20
FILL_SECONDS_MAX = 3_600


def fill(store: Store, *, message_count: int, body_size_bytes: int) -> tuple[int, float]:
    """Append so many messages with the keys 0, 1, … and wait for the Indexer. Returns how many, and messages/s."""
    source = NumberedBatches(
        body_size_bytes=body_size_bytes,
        batch_size_bytes=BATCH_SIZE_BYTES,
        durability=DURABILITIES[store.mode],
    )
    start_s = time.perf_counter()
    done = uvloop.run(
        streams.append_stream(
            store.commitlog,
            source,
            FILL_SECONDS_MAX,
            durability=DURABILITIES[store.mode],
            message_count_max=message_count,
        )
    )
    with connect(commitlog=store.commitlog, indexer=store.indexer) as client:
        reading.wait_indexed(client)
    return done.message_count, done.message_count / (time.perf_counter() - start_s)


def serving(store: Store) -> Serving:
    """Return the store as a target of Reput's load generator."""
    return Serving(
        target=store.commitlog, pids=store.pids, load_command=(sys.executable, "-m", "bench.load"), load_arguments={}
    )


def load(store: Store, operation: Operation, arguments: dict[str, object]) -> dict[str, object]:
    """Run a load in a process of its own. Returns its output."""
    return run_load(serving(store), operation, arguments | {"durability": store.mode})


def number(document: dict[str, object], name: str) -> float:
    """Return a figure of a load's output."""
    value = document[name]
    assert isinstance(value, int | float)
    return float(value)


def rate(document: dict[str, object]) -> float:
    """Return the messages per second of a load's output."""
    return number(document, "messages") / number(document, "seconds")


def background_load(
    store: Store, *, messages_per_s: float, body_size_bytes: int, seconds: float
) -> subprocess.Popen[str]:
    """Start a paced append. Its warm-up has the same pace."""
    words: dict[str, object] = {"body": body_size_bytes, "batch": 1 << 18, "seconds": seconds}
    words |= {"messages-per-s": messages_per_s, "durability": store.mode}
    flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "bench.load", "append", "--target", store.commitlog, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> float:
    """Wait for a background load. Returns its messages per second."""
    output, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the background load ended with exit code {process.returncode}")
    return rate(json.loads(output))


def drop_page_cache(folder: Path) -> None:
    """Write back the files of a folder and let the kernel forget their pages, except mapped pages."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
