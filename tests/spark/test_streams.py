# SPDX-License-Identifier: Apache-2.0
"""Streams into and out of a real store through SIGKILLs of their participants: no row is lost, and no row is twice.

REPUT_SPARK_KILLS sets the number of kills of a test, with random victims. By default each victim is killed once.
REPUT_SPARK_CLUSTER=1 runs the queries on a cluster of their own, whose workers are killed, too.
REPUT_SPARK_SEED repeats the moments of the kills.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc, log_service_pb2, log_service_pb2_grpc

from tests.support import reput_up
from tests.support.etcd_server import ETCD, NO_ETCD, EtcdServer
from tests.support.fixed_service import REPOSITORY, FixedService
from tests.support.patience import LIMIT_S
from tests.support.spark_cluster import SparkCluster

pytest.importorskip("pyspark")

KILL_COUNT = int(os.environ.get("REPUT_SPARK_KILLS", "0"))
SEED = int(os.environ.get("REPUT_SPARK_SEED", "0"))
HAS_CLUSTER = os.environ.get("REPUT_SPARK_CLUSTER", "") == "1"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600 + 60 * KILL_COUNT)]
FILE_COUNT, FILE_ROW_COUNT = 30 + 3 * KILL_COUNT, 400
QUIET = ("--segment-size-bytes", "1048576")
JOB_END_TIMEOUT_S = 120 + 15 * KILL_COUNT


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FixedService]:
    """A CommitLog."""
    service = FixedService("commitlog", tmp_path / "log", *QUIET).start()
    yield service
    service.stop()


@pytest.fixture
def indexer(tmp_path: Path, log: FixedService) -> Iterator[FixedService]:
    """An Indexer of that log."""
    service = FixedService("indexer", tmp_path / "indexes", "--commitlog-target", log.target).start()
    yield service
    service.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster | None]:
    """A cluster, if it is requested."""
    if not HAS_CLUSTER:
        yield None
        return
    with SparkCluster(tmp_path) as running:
        yield running


class Victim(Protocol):
    """A process that is killed, and restarts by itself or is started again."""

    def kill(self) -> None:
        """SIGKILL."""


class Job:
    """The streaming query as a process, whose group includes its JVM and its Python workers."""

    def __init__(self, errors: Path, *arguments: str) -> None:
        self.arguments = arguments
        self._errors = errors
        self.batch_count = 0
        self._child: subprocess.Popen[str] | None = None

    def start(self, *extra: str) -> None:
        """Start the query. Micro-batches are counted over all starts."""
        command = [sys.executable, "-m", "tests.support.spark_job", *self.arguments, *extra]
        with self._errors.open("ab") as errors:
            self._child = child = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        threading.Thread(target=self._count, args=(child,), daemon=True).start()

    def kill(self) -> None:
        """SIGKILL for all of its processes."""
        assert self._child is not None
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def run_to_end(self) -> None:
        """Let a new query write all present rows."""
        self.start("--once")
        assert self._child is not None
        assert self._child.wait(JOB_END_TIMEOUT_S) == 0, self._errors.read_text()[-4000:]

    def wait_batches(self, count: int) -> None:
        """Wait until this many more micro-batches are done, or no more are to come."""
        end_s, wanted = time.monotonic() + LIMIT_S, self.batch_count + count
        while self.batch_count < wanted and time.monotonic() < end_s:
            assert self._child is not None
            assert self._child.poll() is None, self._errors.read_text()[-4000:]
            time.sleep(0.02)

    def _count(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        with child.stdout:
            for line in child.stdout:
                self.batch_count += line.startswith("micro-batch")


def kill_some(
    chance: random.Random, job: Job, others: Sequence[Victim | None], then: Callable[[], object] = lambda: None
) -> None:
    """Run the job, kill the others and the job itself, and finally let a new query write all present rows."""
    victims = [*(other for other in others if other is not None), job]
    if KILL_COUNT:
        victims = [*chance.choices(victims, k=KILL_COUNT - 1), job]
    is_running = False
    for victim in victims:
        if not is_running:
            job.start()
        job.wait_batches(chance.randint(1, 3))
        time.sleep(chance.random() * 0.6)
        victim.kill()
        is_running = victim is not job
    then()
    job.run_to_end()


def master(cluster: SparkCluster | None) -> tuple[str, ...]:
    """Return the option with the cluster on which the job runs."""
    return () if cluster is None else ("--master", cluster.url)


def bodies(target: str, topic: str) -> list[bytes]:
    """Return the bodies of a topic's records, in the order of the log."""
    with grpc.insecure_channel(target) as channel:
        records = log_service_pb2_grpc.LogServiceStub(channel).StreamRecords(log_service_pb2.StreamRecordsRequest())
        return [one.body for step in records for one in step.messages if one.topic == topic]


def make_files(directory: Path, count: int = FILE_COUNT) -> list[str]:
    """Write the files of a stream. Returns their rows."""
    directory.mkdir()
    rows = [f"{number:06d}:{'x' * (number % 300)}" for number in range(count * FILE_ROW_COUNT)]
    for index in range(count):
        values = rows[index * FILE_ROW_COUNT : (index + 1) * FILE_ROW_COUNT]
        table = pa.table({"key": [value[:6] for value in values], "value": values})
        pq.write_table(table, directory / f"{index:03d}.parquet")
        os.utime(directory / f"{index:03d}.parquet", (1_700_000_000 + index, 1_700_000_000 + index))
    return rows


def test_into_a_topic_through_kills(tmp_path: Path, log: FixedService, cluster: SparkCluster | None) -> None:
    """Every row of the files is in the log once, after any kill between and in the middle of micro-batches."""
    chance = random.Random(SEED)
    source = tmp_path / "files"
    rows = make_files(source)
    job = Job(
        tmp_path / "job.log",
        *("into", "--commitlog", log.target, "--topic", "orders", *master(cluster)),
        *("--path", str(source), "--checkpoint", str(tmp_path / "checkpoint")),
    )
    kill_some(chance, job, [log, cluster])
    found = [body.decode() for body in bodies(log.target, "orders")]
    assert sorted(found) == rows


def test_out_of_a_topic_through_kills(
    tmp_path: Path, log: FixedService, indexer: FixedService, cluster: SparkCluster | None
) -> None:
    """The files hold exactly the log: no row is missing or twice, though the log grows during the kills."""
    chance = random.Random(SEED + 1)
    stop = threading.Event()
    sent: list[bytes] = []
    producer = threading.Thread(target=produce, args=(log, stop, sent))
    producer.start()
    output = tmp_path / "lake"
    job = Job(
        tmp_path / "job.log",
        *("from", "--endpoint", indexer.target, "--topic", "orders", "--rate", "3000", *master(cluster)),
        *("--path", str(output), "--checkpoint", str(tmp_path / "checkpoint")),
    )
    try:
        kill_some(chance, job, [indexer, log, cluster], then=lambda: (stop.set(), producer.join()))
    finally:
        stop.set()
    table = pq.read_table(committed_files(output)).to_pydict()
    rows = sorted(zip(table["partition"], table["offset"], table["value"], strict=True))
    assert len(rows) == len({row[:2] for row in rows})
    assert sorted(value.encode() for _, _, value in rows) == sorted(bodies(log.target, "orders")) == sorted(sent)
    for queue_id in range(4):
        offsets = [offset for queue, offset, _ in rows if queue == queue_id]
        assert offsets == list(range(len(offsets)))


@pytest.mark.skipif(ETCD is None, reason=NO_ETCD)
def test_through_the_death_of_a_leader(tmp_path: Path) -> None:
    """A sink continues with the next leader, and each row is at all replicas once.

    A source reads from any Indexer.
    """
    rows = make_files(tmp_path / "files", count=8)
    etcd = EtcdServer(tmp_path / "etcd")
    etcd.start()
    try:
        with reput_up.store(tmp_path / "data", "--replicas", "3", "--etcd", etcd.target) as running:
            lose_the_leader(tmp_path, running, rows)
            read_elsewhere(tmp_path, running, rows)
    finally:
        etcd.kill()


def lose_the_leader(tmp_path: Path, running: reput_up.Store, rows: list[str]) -> None:
    """Write all rows, and kill the leader between or in the middle of micro-batches."""
    targets = running.targets["commitlog"]
    job = Job(
        tmp_path / "into.log",
        *("into", "--commitlog", targets, "--topic", "orders", "--durability", "replicated"),
        *("--path", str(tmp_path / "files"), "--checkpoint", str(tmp_path / "into")),
    )
    job.start()
    job.wait_batches(1)
    leader = next(row for row in running.run("replicas", "--json").rows if row["state"] == "LEADING")
    os.kill(running.child("commitlog", leader["target"].rpartition(":")[2]), signal.SIGKILL)
    job.wait_batches(2)
    job.kill()
    job.run_to_end()
    for target in targets.split(","):
        end_s = time.monotonic() + LIMIT_S
        while len(found := stored(target)) < len(rows) and time.monotonic() < end_s:
            time.sleep(0.2)
        assert sorted(found) == rows


def stored(target: str) -> list[str]:
    """The rows that a log shows, no rows while it is being started."""
    try:
        return [body.decode() for body in bodies(target, "orders")]
    except grpc.RpcError:
        return []


def read_elsewhere(tmp_path: Path, running: reput_up.Store, rows: list[str]) -> None:
    """Read all rows, though the first address of the list has no server."""
    endpoints = ",".join(("127.0.0.1:1", *reversed(running.targets["indexer"].split(","))))
    job = Job(
        tmp_path / "from.log",
        *("from", "--endpoint", endpoints, "--topic", "orders"),
        *("--path", str(tmp_path / "lake"), "--checkpoint", str(tmp_path / "from")),
    )
    job.run_to_end()
    assert sorted(pq.read_table(committed_files(tmp_path / "lake"))["value"].to_pylist()) == rows


def committed_files(directory: Path) -> list[str]:
    """The files that Spark's file sink has committed, without the remains of micro-batches that were killed."""
    logs = (directory / "_spark_metadata").glob("[0-9]*")
    lines = [line for log in logs for line in log.read_text().splitlines() if line.startswith("{")]
    return sorted({json.loads(line)["path"].removeprefix("file://") for line in lines})


def produce(log: FixedService, stop: threading.Event, sent: list[bytes]) -> None:
    """Append small batches as a writer, and repeat each until it is stored."""
    with grpc.insecure_channel(log.target, [("grpc.max_reconnect_backoff_ms", 200)]) as channel:
        stub = append_service_pb2_grpc.AppendServiceStub(channel)
        sequence = 0
        while not stop.is_set():
            batch = [b"%08d" % (20 * sequence + index) for index in range(20)]
            request = append_pb.AppendRequest(
                messages=[append_pb.AppendMessage(topic="orders", body=body) for body in batch],
                writer=append_pb.Writer(id="producer", sequence=sequence),
            )
            try:
                stub.Append(request, timeout=LIMIT_S)
            except grpc.RpcError:
                time.sleep(0.05)
                continue
            sent += batch
            sequence += 1
            time.sleep(0.02)
