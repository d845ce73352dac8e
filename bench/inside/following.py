# SPDX-License-Identifier: Apache-2.0
"""Processor time of a follower's engine for a message: from a leader's chunks to the columns of a tail.

`python -m bench.inside.following` fills a log, and has followers in this process take its chunks from memory, in turns:
as it is; with a scan by the tail (no chunk is large enough for it); and besides with each chunk copied behind the
record that it completes. Prints the least time of the user and of the system. `--folder` is best in memory (/dev/shm),
where the system's part is small.
"""

import argparse
import asyncio
import contextlib
import resource
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop
from reput.common.v1 import message_pb2

from bench import batches
from bench.load.engine import BORN_HOST
from libs.formats.records import dispatch_columns
from libs.formats.records.host import Host
from libs.machine.clock import SystemClock
from libs.machine.posix_fs import PosixFs
from libs.runtime.watch import malloc
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate import applier
from services.commitlog.engine.replicate.chunks import CHUNK_SIZE_BYTES_MAX
from services.commitlog.engine.replicate.steps import NOBODY, Ack, Chunk, Handshake, Hello, Step

HOST = Host.parse("127.0.0.1:1001")
BATCH_SIZE_BYTES = 1 << 20
RECORD_COUNT_MAX = 8_192
"""Records of a step, as an Indexer asks for them."""
NEVER = 1 << 40
WAYS: Mapping[str, tuple[int, int]] = {
    "as it is": (256 << 10, applier.JOINED_BYTES_MAX),
    "the tail scans": (NEVER, applier.JOINED_BYTES_MAX),
    "the tail scans, chunks are copied": (NEVER, NEVER),
}
"""`dispatch_size_bytes_min` and JOINED_BYTES_MAX."""


class Following:
    """A stream of chunks from memory, and a tail of the follower that takes them. See `Replication`."""

    def __init__(self, chunks: Sequence[Chunk], leader: OpenLog) -> None:
        self.log: OpenLog | None = None
        self.times_s: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()
        """Of the user and of the system."""
        self._chunks = chunks
        self._handshake = Handshake(leader.epochs.history_id, tuple(leader.epochs.epochs), 0, 0, 0, 0)

    @contextlib.asynccontextmanager
    async def open(self, _: Hello) -> AsyncIterator["Following"]:
        """See `LeaderAt`."""
        yield self

    async def acknowledge(self, _: Ack) -> None:
        """Ignore it."""

    async def __aiter__(self) -> AsyncIterator[Step]:
        yield self._handshake
        assert self.log is not None
        before = resource.getrusage(resource.RUSAGE_SELF)
        tail = asyncio.create_task(self._tail(self.log))
        for chunk in self._chunks:
            yield replace(chunk, data=memoryview(chunk.data))
            await asyncio.sleep(0)
        self.log.marks.flushed.hurry(self._chunks[-1].end_physical_offset)
        yield replace(self._chunks[-1], start_physical_offset=self._chunks[-1].end_physical_offset, data=b"")
        await tail
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.times_s.set_result((after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime))
        await asyncio.Event().wait()

    async def _tail(self, log: OpenLog) -> None:
        tail = log.followers.tail(start_physical_offset=0, record_count_max=RECORD_COUNT_MAX)
        async for step in tail.steps():
            if step.columns is not None:
                dispatch_columns.encode(step.columns, step.start_physical_offset, step.end_physical_offset)
            if step.end_physical_offset == self._chunks[-1].end_physical_offset:
                return


async def measured(folder: Path, chunks: Sequence[Chunk], leader: OpenLog, way: str) -> tuple[float, float]:
    """Return the processor time of a follower in one of the ways."""
    size_bytes_min, applier.JOINED_BYTES_MAX = WAYS[way]
    following = Following(chunks, leader)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        config = CommitLogConfig(
            data_dir=Path(name), flush_mode="async", role="follower", replica_id="b",
            dispatch_size_bytes_min=size_bytes_min,
        )  # fmt: skip
        commit_log = CommitLog(config, PosixFs(), SystemClock(), on_failure=following.times_s.set_exception)
        following.log = await commit_log.open(HOST, leader=replace(NOBODY, target="x:1", open=following.open))
        times_s = await following.times_s
        await commit_log.close()
    return times_s


async def run(folder: Path, message_count: int, round_count: int) -> None:
    """Fill a log, measure in turns, and print a table."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        config = CommitLogConfig(data_dir=Path(name), flush_mode="async")
        commit_log = CommitLog(config, PosixFs(), SystemClock(), on_failure=print)
        log, count = await commit_log.open(HOST), 0
        source = batches.prebuilt(
            body_size_bytes=1024, batch_size_bytes=BATCH_SIZE_BYTES, durability=message_pb2.DURABILITY_UNSPECIFIED
        )
        while count < message_count:
            count += (await log.pipeline.append(source().data, BORN_HOST)).message_count
        end, epoch = log.chain.max_physical_offset, log.epochs.epochs[-1]
        buffer = log.chain.find(0).buffer
        chunks = [
            Chunk(at, bytes(buffer[at : min(at + CHUNK_SIZE_BYTES_MAX, end)]), epoch, end, end)
            for at in range(0, end, CHUNK_SIZE_BYTES_MAX)
        ]
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(round_count):
            for way, times_s in found.items():
                times_s.append(await measured(folder, chunks, log, way))
        await commit_log.close()
    print("| way | user µs a message | system µs a message |\n|---|---:|---:|")
    for way, rounds in found.items():
        user_s, system_s = (min(times_s) / count for times_s in zip(*rounds, strict=True))
        print(f"| {way} | {user_s * 1e6:.3f} | {system_s * 1e6:.3f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    malloc.tune()
    uvloop.run(run(asked.folder, asked.messages, asked.rounds))


if __name__ == "__main__":
    main()
