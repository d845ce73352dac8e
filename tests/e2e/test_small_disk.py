# SPDX-License-Identifier: Apache-2.0
"""A store on a small disk: appends at full speed until it is full, deletion, appends again, with kills all the time.

REPUT_SMALL_DISK_ROUNDS sets how often, 3 unless set; REPUT_SMALL_DISK_SEED repeats a run.
"""

import contextlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc, log_service_pb2, log_service_pb2_grpc
from reput.common.v1 import message_pb2
from reput.janitor.v1 import retention_service_pb2, retention_service_pb2_grpc

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S
from tests.support.reput_up import run

ROUND_COUNT = int(os.environ.get("REPUT_SMALL_DISK_ROUNDS", "3"))
SEED = int(os.environ.get("REPUT_SMALL_DISK_SEED", "1"))
DISK_BYTES = 64 << 20
ROOMY_DISK_BYTES = 4 << 30
BATCH_COUNT, BODY_SIZE_BYTES = 40, 4_000
SMALL_FILES = {
    "commitlog": (
        *("--segment-size-bytes", str(1 << 20), "--disk-reserve-bytes", str(1 << 20), "--disk-ballast-bytes", "65536"),
        *("--disk-interval-ms", "20", "--checkpoint-interval-ms", "50", "--snapshot-interval-ms", "100"),
        *("--disk-full-percent", "90", "--disk-open-percent", "85"),
    ),
    "indexer": (
        *("--queue-file-size-bytes", "20000", "--index-slot-count", "1000", "--index-entry-capacity", "4000"),
        *("--flush-interval-ms", "50", "--flush-thorough-interval-ms", "200"),
        *("--disk-ballast-bytes", "65536"),
    ),
    "janitor": (
        *("--retention-hours", "0", "--first-check-delay-ms", "0", "--check-interval-ms", "1500"),
        *("--delete-interval-ms", "10", "--disk-max-used-percent", "75", "--disk-forcible-percent", "85"),
        *("--disk-full-percent", "90"),
    ),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600 + 60 * ROUND_COUNT),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    with mounted(tmp_path / "disk", DISK_BYTES) as home:
        yield home


@pytest.fixture
def log_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system for the log, which only this test uses and does not fill."""
    with mounted(tmp_path / "log_disk", ROOMY_DISK_BYTES) as home:
        yield home


@contextlib.contextmanager
def mounted(home: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory, which takes only the memory in use."""
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(home)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield home
    subprocess.run(["umount", str(home)], check=True)


class Store:
    """The three services on a common disk."""

    def __init__(self, disk: Path, index_disk: Path | None = None, janitor_flags: tuple[str, ...] = ()) -> None:
        self.data_dir = disk / "store"
        self.index_dir = (index_disk or disk) / "store"
        for directory in (self.data_dir, self.index_dir):
            directory.mkdir(exist_ok=True)
        other_hour = (time.localtime().tm_hour + 12) % 24  # so that only the disk asks for deletion
        self.log = FixedService("commitlog", self.data_dir, *SMALL_FILES["commitlog"]).start()
        owners = ("--commitlog-target", self.log.target)
        self.indexer = FixedService("indexer", self.index_dir, *owners, *SMALL_FILES["indexer"]).start()
        owners += ("--indexer-target", self.indexer.target, "--delete-when", f"{other_hour:02d}")
        owners += (*SMALL_FILES["janitor"], *janitor_flags)
        self.janitor = FixedService("janitor", self.data_dir, *owners).start()

    @property
    def services(self) -> list[FixedService]:
        """The services in the order of their start."""
        return [self.log, self.indexer, self.janitor]

    def stop(self) -> None:
        """Stop the services in order."""
        for service in reversed(self.services):
            service.stop()


class Producer:
    """A writer that appends numbered messages. `refused` is set while the disk is full."""

    def __init__(self, target: str) -> None:
        self.acknowledged_count = 0
        self.refusal_count = 0
        self.problems: list[str] = []
        self.is_refused = threading.Event()
        self.is_accepted = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(target,))
        self._thread.start()

    def stop(self) -> None:
        """End after the batch under way."""
        self._stop.set()
        self._thread.join()

    def _run(self, target: str) -> None:
        with grpc.insecure_channel(target, [("grpc.max_reconnect_backoff_ms", 200)]) as channel:
            stub = append_service_pb2_grpc.AppendServiceStub(channel)
            sequence = 0
            while not self._stop.is_set():
                first = sequence * BATCH_COUNT
                request = append_pb.AppendRequest(
                    messages=[made(number) for number in range(first, first + BATCH_COUNT)],
                    writer=append_pb.Writer(id="producer", sequence=sequence),
                    durability=message_pb2.DURABILITY_MEMORY,
                )
                try:
                    stub.Append(request, timeout=LIMIT_S)
                except grpc.RpcError as error:
                    self._failed(error)
                    time.sleep(0.02)
                    continue
                self.is_accepted.set()
                self.is_refused.clear()
                self.acknowledged_count = first + BATCH_COUNT
                sequence += 1

    def _failed(self, error: grpc.RpcError) -> None:
        """Check an error: a full disk has the reason STORE_FULL and a retry time, and a killed log is unavailable."""
        code = error.code()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            reason, retry_s = details(error)
            if reason != "STORE_FULL" or not retry_s:
                self.problems.append(f"refused with {reason}, retry after {retry_s} s: {error}")
            self.refusal_count += 1
            self.is_accepted.clear()
            self.is_refused.set()
        elif code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            self.problems.append(str(error))


def made(number: int) -> append_pb.AppendMessage:
    """Return a message, whose key is its number."""
    return append_pb.AppendMessage(topic="orders", queue_id=0, body=body(number), properties={"KEYS": f"k{number}"})


def body(number: int) -> bytes:
    """Return the body of a message."""
    return b"%010d" % number + b"." * BODY_SIZE_BYTES


def details(error: grpc.RpcError) -> tuple[str, float]:
    """Return reason and retry delay of an error."""
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for name, value in error.trailing_metadata():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                detail.Unpack(info)
                detail.Unpack(retry)
    return info.reason, retry.retry_delay.ToNanoseconds() / 1e9


def kept(log: FixedService) -> tuple[list[int], int]:
    """Return the numbers of the log's messages, in order, and its first byte.

    It reads again when this byte is deleted.
    """
    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            return read_all(log)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.OUT_OF_RANGE or time.monotonic() > end_s:
                raise


def read_all(log: FixedService) -> tuple[list[int], int]:
    """Return the same as `kept`, while nothing is deleted."""
    options = [("grpc.max_receive_message_length", 1 << 26)]
    with grpc.insecure_channel(log.target, options) as channel:
        stub = log_service_pb2_grpc.LogServiceStub(channel)
        start = stub.GetStatus(log_service_pb2.GetStatusRequest()).min_physical_offset
        numbers = []
        for step in stub.StreamRecords(log_service_pb2.StreamRecordsRequest(start_physical_offset=start)):
            for message in step.messages:
                numbers.append(int(message.body[:10]))
                assert message.body == body(numbers[-1])
    return numbers, start


def test_small_disk(disk: Path) -> None:
    """Appends are refused at 90 % and accepted again at 85 %, and messages are readable all the time.

    Only messages that the Janitor's history lists are gone.
    """
    chance = random.Random(SEED)
    store = Store(disk)
    try:
        fill_and_kill(store, chance)
    finally:
        store.stop()
    verify(store)


def fill_and_kill(store: Store, chance: random.Random) -> None:
    """Play all rounds, and check the store after them."""
    producer = Producer(store.log.target)
    try:
        for number in range(ROUND_COUNT):
            assert producer.is_refused.wait(LIMIT_S), f"round {number}: the disk does not get full; {producer.problems}"
            store.services[number % 3].kill()
            numbers, start = kept(store.log)
            assert start == 0 or numbers[0] > 0
            time.sleep(chance.random())
            store.services[chance.randrange(3)].kill()
            assert producer.is_accepted.wait(LIMIT_S), f"round {number}: appends are not accepted again"
            time.sleep(chance.random() * 0.2)
    finally:
        producer.stop()
    assert not producer.problems
    with grpc.insecure_channel(store.janitor.target) as channel:
        history = retention_service_pb2_grpc.RetentionServiceStub(channel)
        runs = history.ListHistory(retention_service_pb2.ListHistoryRequest(page_size=100)).runs
    assert {decision.reason for one in runs for decision in one.decisions if decision.action == 2} == {"EXPIRED"}
    # A message that is acknowledged in memory is shown once it is synced.
    wait_until(lambda: kept(store.log)[0][-1] + 1 >= producer.acknowledged_count, "what is acknowledged is read")
    numbers, _ = kept(store.log)
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert producer.acknowledged_count <= numbers[-1] + 1 <= producer.acknowledged_count + BATCH_COUNT


@pytest.mark.long
def test_a_disk_without_a_free_byte(disk: Path) -> None:
    """On a full disk killed services start again, and the Janitor makes room by itself."""
    store = Store(disk)
    producer = Producer(store.log.target)
    try:
        for number in range(1 + ROUND_COUNT // 3):
            wait_until(lambda: disk_used_percent(disk) > 50, f"round {number}: appends go on")
            take_every_byte(disk / "somebody")
            assert producer.is_refused.wait(LIMIT_S), f"round {number}: the disk does not get full; {producer.problems}"
            for service in store.services:
                service.kill()
            assert producer.is_accepted.wait(LIMIT_S), f"round {number}: appends are not accepted again"
            (disk / "somebody").unlink()
    finally:
        producer.stop()
        store.stop()
    assert not producer.problems
    verify(store)


def test_an_index_disk_without_a_free_byte(log_disk: Path, disk: Path) -> None:
    """A killed Indexer on a full disk starts again, and removes the files that the Janitor's deletions allow."""
    store = Store(log_disk, disk)
    producer = Producer(store.log.target)
    try:
        wait_until(lambda: len(index_files(store)) > 8, "messages are indexed")
        producer.stop()
        before = index_files(store)
        take_every_byte(disk / "somebody")
        for _ in range(3):
            store.indexer.kill()
        wait_until(lambda: len(before - index_files(store)) > 4, "files of the index go")
        (disk / "somebody").unlink()
    finally:
        producer.stop()
        store.stop()
    assert not producer.problems


def test_an_index_disk_that_somebody_else_filled(log_disk: Path, disk: Path) -> None:
    """With foreign files on a full index disk no segment is deleted early, after any number of checks.

    Appends continue, and the Janitor notes that the indexes alone do not fill the disk.
    """
    store = Store(log_disk, disk, ("--retention-hours", "72", "--check-interval-ms", "100"))
    producer = Producer(store.log.target)
    try:
        wait_until(lambda: len(index_files(store)) > 8, "messages are indexed")
        take_every_byte(disk / "somebody")
        wait_until(lambda: bool(janitor_status(store).disk_notes), "the Janitor tells of the disk")
        before_count, looks = producer.acknowledged_count, set()
        while len(looks) < 20 or producer.acknowledged_count < before_count + 5 * BATCH_COUNT:
            looks.add(janitor_status(store).last_check_time.ToMilliseconds())
        producer.stop()
        status = janitor_status(store)
        assert (status.deleted_segment_count, status.is_disk_full, status.last_error) == (0, False, "")
        (note,) = status.disk_notes
        assert note.startswith("the indexer's file system is used to 100 %: of its 67108864 bytes ")
        assert note.endswith("; no segment goes before its time for it: the indexes alone do not fill it")
        (own_bytes,) = (one.own_bytes for one in status.disks if one.service == "indexer")
        assert 0 < own_bytes < DISK_BYTES / 2
        numbers, start = kept(store.log)
        assert (numbers[0], start) == (0, 0)
    finally:
        producer.stop()
        store.stop()
    assert (producer.problems, producer.refusal_count) == ([], 0)
    assert Path(f"{store.data_dir}.janitor.log").read_text().count("the indexes alone do not fill it") == 1


def janitor_status(store: Store) -> retention_service_pb2.GetStatusResponse:
    """Return the Janitor's status."""
    with grpc.insecure_channel(store.janitor.target) as channel:
        stub = retention_service_pb2_grpc.RetentionServiceStub(channel)
        return stub.GetStatus(retention_service_pb2.GetStatusRequest(), timeout=LIMIT_S)


def index_files(store: Store) -> set[Path]:
    """Return the existing queue files and index files."""
    return {
        path for name in ("consumequeue", "index") for path in (store.index_dir / name).rglob("*") if path.is_file()
    }


def verify(store: Store) -> None:
    """Check that the files have no faults."""
    done = run("verify", str(store.data_dir), "--json", "--index-slots", "1000")
    assert done.code == 0, done.output + done.errors


def take_every_byte(path: Path) -> None:
    """Fill the disk with a file."""
    with path.open("wb", buffering=0) as file:
        for size_bytes in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size_bytes)):
                    pass


def disk_used_percent(disk: Path) -> float:
    """Return the used part of a file system."""
    found = os.statvfs(disk)
    return 100 - 100 * found.f_bavail / found.f_blocks


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.02)
