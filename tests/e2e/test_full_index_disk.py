# SPDX-License-Identifier: Apache-2.0
"""A client gives the Indexer more queues than its disk holds.

No process ends, and the Indexer recovers without a loss.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import (
    append_service_pb2_grpc,
    log_service_pb2,
    log_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.indexer.v1 import index_service_pb2_grpc, queue_service_pb2, queue_service_pb2_grpc

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S
from tests.support.trusted import trusted

DISK_BYTES = {"tmpfs": 3 << 20, "ext4": 6 << 20}
"""Room for some of the queues: each takes a block of 4 KiB, and on ext4 another block for its directory."""
LARGE_BYTES = 64 << 20
QUEUE_COUNT = 1_000
ORDER_COUNT = 25
SMALL_FILES = (
    *("--index-slot-count", "1000", "--index-entry-capacity", "20000", "--disk-ballast-bytes", "65536"),
    *("--flush-interval-ms", "50", "--flush-thorough-interval-ms", "200", "--reconnect-ms-max", "200"),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * LIMIT_S)]


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system for the Indexer."""
    home, image, size_bytes = tmp_path / "disk", tmp_path / "image", DISK_BYTES[request.param]
    home.mkdir()
    if request.param == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(home)]
    else:
        with image.open("wb") as file:
            file.truncate(size_bytes)
        made = subprocess.run(
            ["mkfs.ext4", "-q", "-m", "0", "-N", "2048", str(image)], capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip("no ext4 can be made here")
        command = ["mount", "-o", "loop", str(image), str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    yield home
    subprocess.run(["umount", str(home)], check=True)


class Store:
    """CommitLog and Indexer, and the calls of the test."""

    def __init__(self, data_dir: Path, disk: Path) -> None:
        self.log = FixedService("commitlog", data_dir, "--segment-size-bytes", str(1 << 20)).start()
        flags = ("--commitlog-target", self.log.target, *SMALL_FILES)
        self.indexer = FixedService("indexer", disk, *flags).start()
        self.log_channel, self.indexer_channel = (
            trusted(grpc.insecure_channel(service.target, [("grpc.max_reconnect_backoff_ms", 200)]))
            for service in (self.log, self.indexer)
        )
        self.appends = append_service_pb2_grpc.AppendServiceStub(self.log_channel)
        self.topics = topic_service_pb2_grpc.TopicServiceStub(self.log_channel)
        self.index = index_service_pb2_grpc.IndexServiceStub(self.indexer_channel)
        self.queues = queue_service_pb2_grpc.QueueServiceStub(self.indexer_channel)

    def stop(self) -> None:
        """Stop the services in order."""
        for channel in (self.log_channel, self.indexer_channel):
            channel.close()
        for service in (self.indexer, self.log):
            service.stop()

    def append_orders(self, first: int) -> None:
        """Append numbered messages of a topic that stays."""
        numbers = range(first, first + ORDER_COUNT)
        messages = [append_pb.AppendMessage(topic="orders", queue_id=0, body=b"%d" % number) for number in numbers]
        self.appends.Append(append_pb.AppendRequest(messages=messages), timeout=LIMIT_S)

    def status(self) -> index_pb.GetStatusResponse:
        """Return the Indexer's status."""
        return self.index.GetStatus(index_pb.GetStatusRequest(), timeout=LIMIT_S, wait_for_ready=True)

    def wait_until_stuck(self) -> None:
        """Wait until the Indexer reports that there is no room."""
        end_s = time.monotonic() + LIMIT_S
        while "no room" not in self.status().last_error:
            assert time.monotonic() < end_s, self.status()
            time.sleep(0.05)

    def wait_until_indexed(self) -> index_pb.GetStatusResponse:
        """Wait until every message is indexed."""
        end_s = time.monotonic() + LIMIT_S
        request = log_service_pb2.GetStatusRequest()
        end = log_service_pb2_grpc.LogServiceStub(self.log_channel).GetStatus(request).confirmed_physical_offset
        while (status := self.status()).indexed_physical_offset < end or not status.is_complete:
            assert time.monotonic() < end_s, status
            time.sleep(0.05)
        return status

    def orders(self) -> list[int]:
        """Return the numbers that a consumer gets."""
        request = queue_service_pb2.PullRequest(topic="orders", queue_id=0, queue_offset=0, message_count_max=1_000)
        return [int(message.body) for message in self.queues.Pull(request, timeout=LIMIT_S).messages]


@pytest.mark.parametrize(
    ("disk", "way"),
    [("tmpfs", "delete"), ("tmpfs", "grow"), pytest.param("ext4", "delete", marks=pytest.mark.long)],
    indirect=["disk"],
)
def test_more_queues_than_the_disk_holds(tmp_path: Path, disk: Path, way: str) -> None:
    """The Indexer waits while it has no room, also after kills.

    After the topic is deleted or the disk grows, every other message is there.
    """
    store = Store(tmp_path / "log", disk)
    try:
        store.append_orders(0)
        store.wait_until_indexed()
        store.topics.CreateTopic(topic_service_pb2.CreateTopicRequest(name="wide", write_queue_count=QUEUE_COUNT))
        wide = [append_pb.AppendMessage(topic="wide", queue_id=number, body=b"x") for number in range(QUEUE_COUNT)]
        for _ in range(3):
            store.appends.Append(append_pb.AppendRequest(messages=wide), timeout=LIMIT_S)
        store.append_orders(ORDER_COUNT)
        store.wait_until_stuck()
        assert store.orders() == list(range(ORDER_COUNT))
        for _ in range(2):
            store.indexer.kill()
            store.wait_until_stuck()
        if way == "delete":
            store.topics.DeleteTopic(topic_service_pb2.DeleteTopicRequest(name="wide"), timeout=LIMIT_S)
        else:
            subprocess.run(["mount", "-o", f"remount,size={LARGE_BYTES}", str(disk)], check=True)
        status = store.wait_until_indexed()
        store.append_orders(2 * ORDER_COUNT)
        store.wait_until_indexed()
        assert store.orders() == list(range(3 * ORDER_COUNT))
        reasons = {note.reason for note in status.stepped_over}
        assert reasons == ({index_pb.STEPPED_OVER_REASON_TOPIC_DELETED} if way == "delete" else set())
    finally:
        store.stop()
