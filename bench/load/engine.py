# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.load.engine append --target FOLDER …`: the CommitLog engine in this process, without gRPC.

It measures the store alone. The counterpart is RocketMQ's DefaultMessageStore in the same process as its load.
"""

import argparse
import asyncio
import json
import time
from collections import deque
from pathlib import Path

import uvloop
from reput.common.v1 import message_pb2

from bench import batches
from bench.load.timing import Loaded
from libs.formats.records.host import Host
from libs.machine.clock import SystemClock
from libs.machine.posix_fs import PosixFs
from libs.runtime.watch import malloc
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.durable.acknowledge import Acknowledgement
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.marks import DURABILITY_LOCAL_DISK

WARM_UP_S = 1.0
WINDOW_COUNT = 8
"""Batches that may wait for their sync."""
BORN_HOST = Host.parse("127.0.0.1:1000").to_bytes()


async def append(log: OpenLog, source: batches.Source, seconds: float) -> Loaded:
    """Append batch after batch. With synchronous flushing some wait for the disk together."""
    message_count = 0
    waiting: deque[Acknowledgement] = deque()
    start_s = time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        batch = source()
        appended = await log.pipeline.append(batch.data, BORN_HOST)
        message_count += appended.message_count
        acknowledgement = log.acknowledgements.of(appended)
        if not acknowledgement.is_settled:
            waiting.append(acknowledgement)
        if len(waiting) == WINDOW_COUNT:
            await synced(waiting.popleft())
        await asyncio.sleep(0)
    while waiting:
        await synced(waiting.popleft())
    return Loaded(message_count, 0, time.perf_counter() - start_s)


async def synced(acknowledgement: Acknowledgement) -> None:
    """Wait for the disk."""
    await acknowledgement.settle()
    assert acknowledgement.durability() == DURABILITY_LOCAL_DISK


async def run(arguments: argparse.Namespace) -> Loaded:
    """Open a log, warm it up, load it, close it."""
    failures: list[BaseException] = []
    config = CommitLogConfig(data_dir=Path(arguments.target) / "store", flush_mode=arguments.durability)
    commit_log = CommitLog(config, PosixFs(), SystemClock(), on_failure=failures.append)
    log = await commit_log.open(Host.parse("127.0.0.1:1001"))
    try:
        source = batches.prebuilt(
            body_size_bytes=arguments.body,
            batch_size_bytes=arguments.batch,
            durability=message_pb2.DURABILITY_UNSPECIFIED,
        )
        await append(log, source, WARM_UP_S)
        done = await append(log, source, arguments.seconds)
    finally:
        await commit_log.close()
    if failures:
        raise failures[0]
    return Loaded(done.message_count, done.message_count * arguments.body, done.duration_s)


def main() -> None:
    """Load and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.load.engine", description=__doc__, allow_abbrev=False)
    parser.add_argument("operation", choices=("append",))
    parser.add_argument("--target", required=True, help="an empty folder")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--batch", type=int, default=1 << 20, help="bytes of a batch")
    parser.add_argument("--producers", type=int, choices=(1,), default=1, help="the log has one writer")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of the load")
    parser.add_argument("--durability", choices=("async", "sync"), default="async", help="the store's flush mode")
    arguments = parser.parse_args()
    malloc.tune()
    print(json.dumps(uvloop.run(run(arguments)).document()), flush=True)


if __name__ == "__main__":
    main()
