# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.recovery --sizes 1GiB,10GiB`: how long a start takes after a kill, for stores of different sizes.

For each size: fill a store through the real CommitLog, kill it (SIGKILL) while a stream of appends is under way, start
it again, and take the time from the start of the process until it serves. The quantities that may influence that time
are printed beside it: the size of the store, and the bytes past the last checkpoint. A table goes to the terminal, JSON
to a file.
"""

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
from reput.commitlog.v1 import log_service_pb2, log_service_pb2_grpc
from reput.common.v1 import message_pb2
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench import batches
from bench.load import streams
from libs.log.state import small_files
from libs.machine.posix_fs import PosixFs

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}
SPARE_BYTES = 4 << 30
"""Kept free: two segments are ahead of need, and the machine wants some, too."""
FILL_SECONDS = 1.0
KILL_AFTER_S = 1.5
START_TIMEOUT_S = 600
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurement of a store."""

    store_bytes: int
    past_checkpoint_bytes: int
    scanned_bytes: int
    scanned_records: int
    recovery_ms: int
    start_to_serving_ms: int
    empty_start_to_serving_ms: int


@dataclass(frozen=True, slots=True)
class Running:
    """A CommitLog process, and how long it took until it served."""

    process: subprocess.Popen[bytes]
    target: str
    start_to_serving_ms: int


def size_of(text: str) -> int:
    """Return the bytes of a size such as 10GiB."""
    match = re.fullmatch(r"(\d+)(MiB|GiB)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512MiB or 10GiB")
    return int(match[1]) * UNITS[match[2]]


def sizes_of(text: str) -> list[int]:
    """Return the bytes of several sizes, with commas between."""
    return [size_of(part) for part in text.split(",")]


def status_of(target: str) -> log_service_pb2.GetStatusResponse | None:
    """Return the CommitLog's status, or None if there is no answer."""
    with grpc.insecure_channel(target) as channel, contextlib.suppress(grpc.RpcError):
        stub = log_service_pb2_grpc.LogServiceStub(channel)
        answer: log_service_pb2.GetStatusResponse = stub.GetStatus(log_service_pb2.GetStatusRequest(), timeout=5)
        return answer
    return None


@contextlib.contextmanager
def running(data_dir: Path) -> Iterator[Running]:
    """Run a CommitLog over this directory. It is killed at the end if it still runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    target = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "services.commitlog", "--data-dir", str(data_dir), "--port", str(port)]
    start_s = time.perf_counter()
    process = subprocess.Popen([*command, "--flush-mode", "async", "--metrics-port", "0", "--log-level", "warning"])
    try:
        while time.perf_counter() - start_s < START_TIMEOUT_S and process.poll() is None:
            status = status_of(target)
            if status is not None and status.state == log_service_pb2.LOG_STATE_SERVING:
                yield Running(process, target, round((time.perf_counter() - start_s) * 1000))
                return
            time.sleep(POLL_S)
        raise RuntimeError(f"the CommitLog of {data_dir} does not serve")
    finally:
        process.kill()
        process.wait()


def fill(target: str, size_bytes: int, progress: Progress) -> None:
    """Append until the log is so large."""
    sent = batches.prebuilt(body_size_bytes=1_024, batch_size_bytes=1 << 20, durability=message_pb2.DURABILITY_MEMORY)
    task = progress.add_task(f"filling {size_bytes >> 20:,} MiB", total=size_bytes)
    while (status := status_of(target)) is not None and status.max_physical_offset < size_bytes:
        progress.update(task, completed=status.max_physical_offset)
        asyncio.run(streams.append_stream(target, sent, FILL_SECONDS))
    progress.update(task, completed=size_bytes)


def kill_under_load(found: Running) -> None:
    """Kill with SIGKILL in the middle of a stream of appends."""
    sent = batches.prebuilt(body_size_bytes=1_024, batch_size_bytes=1 << 18, durability=message_pb2.DURABILITY_MEMORY)

    async def loaded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the stream breaks in several places
        stream = asyncio.create_task(streams.append_stream(found.target, sent, 10 * KILL_AFTER_S))
        await asyncio.sleep(KILL_AFTER_S)
        found.process.send_signal(signal.SIGKILL)
        stream.cancel()
        await asyncio.wait([stream])

    asyncio.run(loaded())
    found.process.wait()


def measure(directory: Path, size_bytes: int, progress: Progress) -> Measured:
    """Fill, kill, start."""
    needed = size_bytes + SPARE_BYTES
    if shutil.disk_usage(directory).free < needed:
        raise RuntimeError(f"{directory} has less than {needed >> 30} GiB of free space")
    data_dir = Path(tempfile.mkdtemp(prefix="recovery-", dir=directory))
    try:
        with running(data_dir) as found:
            empty_ms = found.start_to_serving_ms
            fill(found.target, size_bytes, progress)
            kill_under_load(found)
        checkpoint = small_files.load_checkpoint(PosixFs(), data_dir)
        with running(data_dir) as found:
            status = status_of(found.target)
            assert status is not None
            assert not status.recovery.was_clean_stop
            return Measured(
                store_bytes=status.max_physical_offset,
                past_checkpoint_bytes=status.max_physical_offset - checkpoint.durable_physical_offset,
                scanned_bytes=status.recovery_progress.scanned_bytes,
                scanned_records=status.recovery.scanned_record_count,
                recovery_ms=status.recovery.duration_ms,
                start_to_serving_ms=found.start_to_serving_ms,
                empty_start_to_serving_ms=empty_ms,
            )
    finally:
        shutil.rmtree(data_dir)


def table_of(results: list[Measured]) -> Table:
    """Return the figures for people."""
    view = Table(
        "store", "past checkpoint", "scanned", "records", "recovery", "start to serving", "of an empty store",
        title="starts after SIGKILL under load",
    )  # fmt: skip
    for one in results:
        view.add_row(
            f"{one.store_bytes / (1 << 30):.2f} GiB",
            f"{one.past_checkpoint_bytes / (1 << 20):.1f} MiB",
            f"{one.scanned_bytes / (1 << 20):.1f} MiB",
            f"{one.scanned_records:,}",
            f"{one.recovery_ms:,} ms",
            f"{one.start_to_serving_ms:,} ms",
            f"{one.empty_start_to_serving_ms:,} ms",
        )
    return view


def main() -> None:
    """Read the arguments, measure, write, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--sizes", type=sizes_of, default=sizes_of("1GiB,10GiB"), help="sizes of the stores, in turn")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="where the stores are made")
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), help="folder for recovery.json")
    arguments = parser.parse_args()
    with Progress(console=Console(stderr=True)) as progress:
        results = [measure(arguments.directory, size_bytes, progress) for size_bytes in arguments.sizes]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "recovery.json").write_text(json.dumps([asdict(one) for one in results], indent=2) + "\n")
    Console().print(table_of(results))


if __name__ == "__main__":
    main()
