# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.deletion`: the effect of deleting 50 segments on appends and on readers of the deleted records.

In each round the log is filled, 100 readers read its oldest records all the time and check every byte, and messages are
appended at a steady pace. First nothing is deleted for as long as a deletion takes, then the Janitor deletes 50
segments. The figures are the appends' 99th percentiles of both phases, and their ratio. Exit code 1 if a reader saw a
wrong byte or an error other than that its place is gone.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc, log_service_pb2, log_service_pb2_grpc
from reput.common.v1.message_pb2 import DURABILITY_MEMORY
from reput.janitor.v1 import retention_service_pb2, retention_service_pb2_grpc
from rich.console import Console
from rich.progress import Progress

from bench import machine, store
from bench.load.timing import percentiles_ms
from libs.runtime.trust.tokens import find_local_token

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

SEGMENT_SIZE_BYTES, SEGMENT_COUNT = 8 << 20, 50
READER_COUNT, READER_PAUSE_S, READ_SIZE_BYTES = 100, 1.0, 64 << 10
BODY_SIZE_BYTES, FILL_BATCH_COUNT = 1_000, 1_000
APPENDS_PER_S = 400
TOPIC = "bench"
DELETE_SECONDS = SEGMENT_COUNT * 0.1
"""The Janitor pauses 100 ms between two deletions."""

console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of a round. Latencies in milliseconds."""

    quiet_p99_ms: float
    deleting_p99_ms: float
    ratio: float
    deletion_s: float
    append_count: int


def body(number: int) -> bytes:
    """Return bytes that tell whether any of them is wrong."""
    return (b"%010d" % number) * (BODY_SIZE_BYTES // 10)


async def fill(target: str, first: int) -> int:
    """Append until there are as many full segments as are to be deleted, and a few more. Returns the next number."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub = append_service_pb2_grpc.AppendServiceStub(channel)
        for _ in range((SEGMENT_COUNT + 5) * SEGMENT_SIZE_BYTES // (FILL_BATCH_COUNT * BODY_SIZE_BYTES)):
            messages = [
                append_pb.AppendMessage(topic=TOPIC, body=body(number))
                for number in range(first, first + FILL_BATCH_COUNT)
            ]
            await stub.Append(append_pb.AppendRequest(messages=messages, durability=DURABILITY_MEMORY), timeout=30)
            first += FILL_BATCH_COUNT
    return first


async def append_steadily(target: str, until: asyncio.Event) -> list[float]:
    """Append single messages at a steady pace. Returns the latency of each in seconds, from when it was due."""
    latencies_s: list[float] = []
    under_way: set[asyncio.Task[None]] = set()
    async with grpc.aio.insecure_channel(target) as channel:
        stub = append_service_pb2_grpc.AppendServiceStub(channel)
        request = append_pb.AppendRequest(
            messages=[append_pb.AppendMessage(topic="single", body=body(0))], durability=DURABILITY_MEMORY
        )

        async def append(due_s: float) -> None:
            await stub.Append(request, timeout=30)
            latencies_s.append(time.perf_counter() - due_s)

        due_s = time.perf_counter()
        while not until.is_set():
            task = asyncio.create_task(append(due_s))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            due_s += 1 / APPENDS_PER_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        await asyncio.gather(*under_way)
    return latencies_s


async def for_seconds(seconds: float, target: str) -> list[float]:
    """Return the latencies over a time."""
    until = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, until.set)
    return await append_steadily(target, until)


def operator(target: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of an operator's call."""
    return (("authorization", f"Bearer {find_local_token([target])}"),)


async def wait_deletable(target: str) -> None:
    """Wait until the Janitor would delete enough: until the Indexer has synced it."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub = retention_service_pb2_grpc.RetentionServiceStub(channel)
        request = retention_service_pb2.RunOnceRequest(dry_run=True)
        while True:
            run = (await stub.RunOnce(request, timeout=60, metadata=operator(target))).run
            if sum(one.action == retention_service_pb2.ACTION_DELETE for one in run.decisions) >= SEGMENT_COUNT:
                return
            await asyncio.sleep(0.5)


async def while_deleting(served: store.Store) -> tuple[list[float], float]:
    """Return the latencies while the Janitor deletes, and how long that took."""
    until = asyncio.Event()
    appending = asyncio.create_task(append_steadily(served.commitlog, until))
    async with grpc.aio.insecure_channel(served.janitor) as channel:
        stub = retention_service_pb2_grpc.RetentionServiceStub(channel)
        request = retention_service_pb2.RunOnceRequest()
        start_s = time.perf_counter()
        run = (await stub.RunOnce(request, timeout=120, metadata=operator(served.janitor))).run
        seconds = time.perf_counter() - start_s
    until.set()
    if run.deleted_segment_count < SEGMENT_COUNT:
        raise RuntimeError(f"{run.deleted_segment_count} segments were deleted: {run.error or run.decisions[-1]}")
    return await appending, seconds


def read_all_the_time(target: str, stop: "Event", told: "Queue[Counter[str]]") -> None:
    """Run a process of readers. Counts records and trimmed places, and everything else as a problem, by its text."""

    async def reader(index: int, channel: grpc.aio.Channel, counts: Counter[str]) -> None:
        stub = log_service_pb2_grpc.LogServiceStub(channel)
        await asyncio.sleep(index / READER_COUNT * READER_PAUSE_S)
        while not stop.is_set():
            try:
                status = await stub.GetStatus(log_service_pb2.GetStatusRequest(), timeout=30)
                start = status.min_physical_offset
                request = log_service_pb2.StreamRecordsRequest(
                    start_physical_offset=start, end_physical_offset=start + READ_SIZE_BYTES
                )
                async for step in stub.StreamRecords(request, timeout=30):
                    good = sum(message.body == message.body[:10] * (BODY_SIZE_BYTES // 10) for message in step.messages)
                    counts["records"] += good
                    counts["wrong bytes"] += len(step.messages) - good
            except grpc.aio.AioRpcError as error:
                is_gone = error.code() is grpc.StatusCode.OUT_OF_RANGE
                counts["places that were gone" if is_gone else f"{error.code().name}: {error.details()}"] += 1
            await asyncio.sleep(READER_PAUSE_S)

    async def read() -> Counter[str]:
        counts: Counter[str] = Counter()
        async with grpc.aio.insecure_channel(target) as channel:
            await asyncio.gather(*(reader(index, channel, counts) for index in range(READER_COUNT)))
        return counts

    told.put(asyncio.run(read()))


async def rounds(served: store.Store, count: int, progress: Progress) -> list[Round]:
    """Run all rounds, with the readers at work."""
    found, number = [], 0
    task = progress.add_task("deleting under readers", total=count)
    for _ in range(count):
        number = await fill(served.commitlog, number)
        await wait_deletable(served.janitor)
        quiet_s = await for_seconds(DELETE_SECONDS, served.commitlog)
        deleting_s, seconds = await while_deleting(served)
        quiet, deleting = (percentiles_ms(one)["p99"] for one in (quiet_s, deleting_s))
        found.append(Round(quiet, deleting, deleting / quiet, seconds, len(deleting_s)))
        progress.advance(task)
    return found


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.deletion", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="deletions (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), metavar="DIR", help="where results go")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR", help="where data are kept"
    )
    chosen = parser.parse_args()
    facts = machine.machine(chosen.data)
    settings = {
        "REPUT_COMMITLOG_SEGMENT_SIZE_BYTES": str(SEGMENT_SIZE_BYTES),
        "REPUT_JANITOR_RETENTION_HOURS": "0",
        "REPUT_JANITOR_DELETE_WHEN": f"{(time.localtime().tm_hour + 12) % 24:02d}",
    }
    context = multiprocessing.get_context("spawn")
    stop, told = context.Event(), context.Queue()
    with (
        tempfile.TemporaryDirectory(prefix="reput-bench-", dir=chosen.data) as folder,
        store.running(Path(folder), "async", **settings) as served,
        Progress(console=console) as progress,
    ):
        readers = context.Process(target=read_all_the_time, args=(served.commitlog, stop, told))
        readers.start()
        found = asyncio.run(rounds(served, chosen.rounds, progress))
        stop.set()
        counts = told.get(timeout=60)
        readers.join()
    problems = {
        name: count for name, count in counts.items() if name not in ("records", "places that were gone") and count
    }
    result = {
        "machine": facts,
        "median_ratio": statistics.median(one.ratio for one in found),
        "rounds": [asdict(one) for one in found],
        "readers": dict(counts),
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "deletion.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
    for one in found:
        print(f"append p99 {one.quiet_p99_ms:.2f} ms quiet, {one.deleting_p99_ms:.2f} ms deleting: {one.ratio:.2f}")
    print(f"median ratio {result['median_ratio']:.2f}; readers: {dict(counts)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
