# SPDX-License-Identifier: Apache-2.0
"""The CommitLog as a process on a real file system without a single free byte."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb

from tests.support.commitlog import SEGMENT_SIZE, message
from tests.support.patience import LIMIT_S
from tests.support.served_commitlog import Client, Process, process
from tests.support.service_process import Refusal

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")]

DISK_BYTES = 4 << 20
FLAGS = (
    *("--segment-size-bytes", str(SEGMENT_SIZE), "--disk-reserve-bytes", "0", "--disk-interval-ms", "50"),
    *("--disk-full-percent", "100"),
    *("--checkpoint-interval-ms", "20", "--snapshot-interval-ms", "20"),
)
BALLAST = ("--disk-ballast-bytes", "65536")
POOL = ("--flush-mode", "async", "--transient-store-pool", "true", "--transient-store-pool-segment-count", "2")
LOCAL_DISK = 2
TOPIC_COUNT_MAX = 1_000


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    home = tmp_path / "disk"
    home.mkdir()
    if request.param == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(home)]
    else:
        image = tmp_path / "image"
        image.write_bytes(bytes(DISK_BYTES))
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        mount = ["mount", "-o", "loop", str(image), str(home)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no {request.param} can be mounted here: {done.stderr.strip()}")
    yield home
    subprocess.run(["umount", str(home)], check=True)


def take_all(disk: Path) -> None:
    """Fill the disk with a foreign file, which takes every free byte."""
    descriptor = os.open(disk / "other", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for size in (1 << 16, 1 << 12, 1):
        try:
            while True:
                os.write(descriptor, b"x" * size)
        except OSError:
            os.fsync(descriptor)
    os.close(descriptor)


async def take_all_of(disk: Path) -> None:
    """Fill the disk while a CommitLog runs.

    A file that the CommitLog is just replacing frees its old bytes a moment later.
    """
    for _ in range(3):
        take_all(disk)
        await asyncio.sleep(0.1)


async def send(client: Client, body: bytes, topic: str = "orders") -> None:
    """Append a message and wait for the disk."""
    request = append_pb.AppendRequest(messages=[message(body, topic)], durability=LOCAL_DISK)
    await client.append.Append(request)


async def send_all(client: Client, sent: list[bytes]) -> None:
    """Append more than the disk can take. Messages that were appended are recorded in `sent`."""
    for _ in range(80):
        start = b"%02d" % (len(sent) % 100)
        await send(client, start + bytes(10_000))
        sent.append(start)


async def stored(client: Client) -> list[bytes]:
    """The first bytes of all bodies."""
    call = client.log.StreamRecords(log_pb.StreamRecordsRequest())
    return [found.body[:2] for response in [step async for step in call] for found in response.messages]


async def make_topics_until_full(client: Client, sent: list[bytes]) -> None:
    """Append to new topics until one is refused: the last block of the journal of topics has room for some changes."""
    for number in range(TOPIC_COUNT_MAX):
        try:
            await send(client, b"nw", f"new-{number}")
        except grpc.aio.AioRpcError as error:
            if Refusal(error).reason != "STORE_FULL":
                raise
            return
        sent.append(b"nw")
    pytest.fail(f"{TOPIC_COUNT_MAX} topics were made on a full disk")


@pytest.mark.parametrize(("disk", "mode"), [("tmpfs", ()), ("ext4", ()), ("tmpfs", POOL)], indirect=["disk"])
async def test_killed_and_stopped_on_a_full_disk(disk: Path, mode: tuple[str, ...]) -> None:
    """On a full disk the CommitLog starts again after each kill and after a clean stop.

    It reads all its messages, and appends when there is room. Until then new segments are refused, and new topics that
    do not fit into the journal's last block. A store into a page never ends the process.
    """
    store, flags = disk / "store", (*FLAGS, *BALLAST, *mode)
    sent = [b"%02d" % number for number in range(20)]
    async with process(store, *flags) as child, child.client() as client:
        for body in sent:
            await send(client, body + bytes(10_000))
        await take_all_of(disk)
        await make_topics_until_full(client, sent)
        await child.end(signal.SIGKILL)
    for number in range(3):
        take_all(disk)
        async with process(store, *flags) as child, child.client() as client:
            assert await stored(client) == sent
            take_all(disk)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await send_all(client, sent)
            assert Refusal(caught.value).reason == "STORE_FULL"
            await child.end(signal.SIGTERM if number == 1 else signal.SIGKILL)
            assert child.child.returncode == (0 if number == 1 else -signal.SIGKILL), child.lines
    (disk / "other").unlink()
    async with process(store, *flags) as child, child.client() as client:
        assert await stored(client) == sent
        await send(client, b"new", topic="new")
        assert (await client.log.GetStatus(log_pb.GetStatusRequest())).recovery.truncated_bytes == 0


@pytest.mark.parametrize("disk", ["tmpfs", "ext4"], indirect=True)
async def test_without_ballast_a_start_says_what_it_lacks(disk: Path) -> None:
    """Without ballast a start on a full disk prints a line with file and bytes, and has exit code 1, at each try.

    After the disk has room again, it starts.
    """
    store = disk / "store"
    flags = (*FLAGS, "--disk-ballast-bytes", "0")
    async with process(store, *flags) as child, child.client() as client:
        await send(client, b"00")
        take_all(disk)
        await child.end(signal.SIGKILL)
    for _ in range(2):
        take_all(disk)
        child = await Process.start(store, *flags)
        assert await asyncio.wait_for(child.wait_ended(), LIMIT_S) == 1
        line = [line for line in child.lines if not line.startswith("{")]
        assert len(line) == 1
        assert "the disk has no room for" in line[0]
        assert str(store) in line[0]
    (disk / "other").unlink()
    async with process(store, *flags) as child, child.client() as client:
        assert await stored(client) == [b"00"]
