# SPDX-License-Identifier: Apache-2.0
"""The CommitLog as a process on a real disk: stops, kills, failing disks, and starts that can't be."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb

from libs.formats.state.store_checkpoint import FILE_SIZE_BYTES
from tests.support.commitlog import SEGMENT_SIZE, message
from tests.support.served_commitlog import Client, Process, process
from tests.support.service_process import Ended, Refusal
from tests.support.surroundings import free_port

pytestmark = pytest.mark.slow

SMALL = ("--segment-size-bytes", str(SEGMENT_SIZE))
LAZY = (*SMALL, "--flush-interval-ms", "3600000", "--snapshot-interval-ms", "3600000")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory that only root may write."""
    tmp_path.chmod(0o500)
    yield tmp_path
    tmp_path.chmod(0o700)


def batch(*bodies: bytes, durability: int = 0) -> append_pb.AppendRequest:
    """A request of plain messages."""
    return append_pb.AppendRequest(messages=[message(body) for body in bodies], durability=durability)


async def stored(client: Client) -> list[bytes]:
    """The bodies of all records."""
    call = client.log.StreamRecords(log_pb.StreamRecordsRequest())
    return [found.body for response in [step async for step in call] for found in response.messages]


def flip(path: Path, position: int) -> None:
    """Change a bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def cut(path: Path, start: int, kept: int) -> bytes:
    """Zero a record except its first bytes, and return the bytes that are left of it."""
    data = bytearray(path.read_bytes())
    data[start + kept :] = bytes(len(data) - start - kept)
    path.write_bytes(data)
    return bytes(data[start:]).rstrip(b"\0")


def content(path: str) -> bytes:
    """The bytes of a file."""
    return Path(path).read_bytes()


async def status(client: Client) -> log_pb.GetStatusResponse:
    """The state of the log."""
    return await client.log.GetStatus(log_pb.GetStatusRequest())


async def test_clean_stop(tmp_path: Path) -> None:
    """SIGTERM ends the process with 0 and a cleanly closed store, and every message is there at the next start."""
    async with process(tmp_path, *SMALL) as child:
        async with child.client() as client:
            for index in range(150):
                await client.append.Append(batch(b"%04d" % index + bytes(1000)))
        assert (tmp_path / "abort").read_text() == f"{child.child.pid}\n"
        assert await child.end(signal.SIGTERM) == 0
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "checkpoint").stat().st_size == FILE_SIZE_BYTES
    async with process(tmp_path, *SMALL) as child, child.client() as client:
        assert (await status(client)).recovery.was_clean_stop
        assert [body[:4] for body in await stored(client)] == [b"%04d" % index for index in range(150)]
        assert list((await client.append.Append(batch(b"x"))).result.queue_offsets) == [150]


async def test_kill_under_load_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """After SIGKILL every message with the outcome MEMORY is there, in order, and none is there twice."""
    async with process(tmp_path, *LAZY) as child, child.client() as client:
        call = client.append.AppendStream()
        acknowledged = 0

        async def send() -> None:
            number = 0
            while True:
                requests = [b"%08d" % (number + index) for index in range(20)]
                await call.write(append_pb.AppendStreamRequest(messages=[message(body) for body in requests]))
                number += 20

        async def count() -> None:
            nonlocal acknowledged
            while (response := await call.read()) is not grpc.aio.EOF:
                for outcome in response.outcomes:
                    acknowledged += len(outcome.result.physical_offsets)
                if acknowledged > 3_000:
                    child.child.send_signal(signal.SIGKILL)

        await asyncio.gather(send(), count(), return_exceptions=True)
        assert await child.wait_ended() == -signal.SIGKILL
    async with process(tmp_path, *LAZY) as child, child.client() as client:
        found = await stored(client)
        assert len(found) >= acknowledged > 3_000
        assert found == [b"%08d" % index for index in range(len(found))]
        assert not (await status(client)).recovery.was_clean_stop
        assert (await status(client)).epoch == 2
        result = (await client.append.Append(batch(b"x"))).result
        assert list(result.queue_offsets) == [len(found)]


async def test_a_writer_stores_each_batch_once_through_kills(tmp_path: Path) -> None:
    """A writer that begins again with its first batch after every SIGKILL stores each batch once."""
    sent = [
        append_pb.AppendStreamRequest(
            messages=[message(b"%d/%d" % (sequence, index)) for index in range(20)],
            writer=append_pb.Writer(id="job/0", sequence=sequence),
        )
        for sequence in range(300)
    ]

    async def send(client: Client, child: Process, kill_after: int) -> list[append_pb.AppendResult]:
        call, results = client.append.AppendStream(), []

        async def write() -> None:
            for one in sent:
                await call.write(one)
            await call.done_writing()

        async def read() -> None:
            while (response := await call.read()) is not grpc.aio.EOF:
                results.extend(outcome.result for outcome in response.outcomes)
                if len(results) > kill_after:
                    child.child.send_signal(signal.SIGKILL)

        await asyncio.gather(write(), read(), return_exceptions=True)
        return results

    for kill_after in (30, 120, 250):
        async with process(tmp_path, *LAZY) as child, child.client() as client:
            await send(client, child, kill_after)
            assert await child.wait_ended() == -signal.SIGKILL
    async with process(tmp_path, *LAZY) as child, child.client() as client:
        results = await send(client, child, len(sent))
        assert len(results) == len(sent)
        repeated = [result.is_repeated for result in results]
        assert repeated == sorted(repeated, reverse=True)
        assert sum(repeated) > 250
        assert [len(result.physical_offsets) for result in results] == [0 if one else 20 for one in repeated]
        starts = [result.start_physical_offset for result in results]
        assert starts == sorted(set(starts))
        assert await stored(client) == [one.body for batch in sent for one in batch.messages]


async def test_torn_tail(tmp_path: Path) -> None:
    """A record that a kill cut short is truncated, with a copy, and the records before it stay."""
    async with process(tmp_path, *LAZY) as child, child.client() as client:
        for index in range(5):
            result = (await client.append.Append(batch(b"%d" % index + bytes(500)))).result
        await child.end(signal.SIGKILL)
    segment = tmp_path / "commitlog" / f"{0:020d}"
    torn = cut(segment, result.start_physical_offset, 300)
    async with process(tmp_path, *LAZY) as child, child.client() as client:
        recovery = (await status(client)).recovery
        assert (recovery.scan_end, recovery.truncated_bytes) == ("torn tail", len(torn))
        assert content(recovery.truncated_copy_path) == torn
        assert [body[:1] for body in await stored(client)] == [b"0", b"1", b"2", b"3"]


@pytest.mark.crash
@pytest.mark.parametrize(
    "failpoint",
    [
        "append.before_write=kill@5",
        "append.after_write=kill@5",
        "segment.before_sync=kill@3",
        "segment.after_sync=kill@3",
        "write_atomic.before_rename=kill@6",
        "write_atomic.after_rename=kill@8",
        "create.before_rename=kill@2",
        "create.after_rename=kill@2",
    ],
)
async def test_kill_where_durability_changes_hands(tmp_path: Path, failpoint: str) -> None:
    """After a kill at any of these points every acknowledged message is there.

    A message that was not acknowledged is whole or absent.
    """
    acknowledged = 0
    child = await Process.start(tmp_path, *SMALL, failpoints=failpoint)
    with contextlib.suppress(Ended, grpc.aio.AioRpcError):  # a slow machine may come there before it serves
        await child.wait_serving()
        async with child.client() as client:
            for index in range(300):
                await client.append.Append(batch(b"%04d" % index + bytes(1000), durability=1 + index % 2))
                acknowledged += 1
    assert await child.wait_ended() == -signal.SIGKILL
    async with process(tmp_path, *SMALL) as child, child.client() as client:
        found = [body[:4] for body in await stored(client)]
        assert acknowledged <= len(found) <= acknowledged + 1
        assert found == [b"%04d" % index for index in range(len(found))]
        assert list((await client.append.Append(batch(b"x"))).result.queue_offsets) == [len(found)]


async def test_failed_sync_seals_the_store_and_ends_the_process(tmp_path: Path) -> None:
    """The append that waits for the sync gets STORE_SEALED, the exit code is 3, and synced messages stay."""
    async with process(tmp_path, *LAZY, failpoints="segment.before_sync=raise@3") as child, child.client() as client:
        kept = [b"0", b"1"]
        for body in kept:
            await client.append.Append(batch(body, durability=2))
        with pytest.raises(grpc.aio.AioRpcError) as sealed:
            await client.append.Append(batch(b"2", durability=2))
        assert sealed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert Refusal(sealed.value).reason == "STORE_SEALED"
        assert await child.wait_ended() == 3
        assert child.lines[-1].startswith("reput commitlog: ")
    assert (tmp_path / "abort").exists()
    async with process(tmp_path, *LAZY) as child, child.client() as client:
        assert (await stored(client))[: len(kept)] == kept


async def refused(data_dir: Path, *flags: str) -> tuple[int, str]:
    """Start a process that can't start. Return its exit code and its line."""
    child = await Process.start(data_dir, *flags)
    code = await child.wait_ended()
    plain = [line for line in child.lines if not line.startswith("{")]
    assert len(plain) == 1, child.lines
    return code, plain[0]


async def test_starts_that_cannot_be(tmp_path: Path) -> None:
    """Each refused start prints a line with its reason, has a non-zero exit code, and leaves the store as it was."""
    store = tmp_path / "store"
    segment = store / "commitlog" / f"{0:020d}"
    async with process(store, *SMALL) as child:
        async with child.client() as client:
            await client.append.Append(batch(b"x"))
        code, line = await refused(store, *SMALL)
        assert (code, "another process uses this directory" in line) == (5, True)
        code, line = await refused(tmp_path / "other", *SMALL, "--port", str(child.port))
        assert (code, f"127.0.0.1:{child.port} is in use" in line) == (4, True)
        await child.end(signal.SIGTERM)
    code, line = await refused(store)
    assert (code, "configured segment size is 1073741824 bytes" in line) == (1, True)
    code, line = await refused(store, "--segment-size-bytes", "5")
    assert (code, "segment_size_bytes" in line) == (2, True)
    code, line = await refused(segment / "store", *SMALL)
    assert (code, "Not a directory" in line) == (1, True)
    flip(segment, 88)
    code, line = await refused(store, *SMALL)
    assert (code, "damaged at byte 0" in line) == (1, True)
    assert not (store / "abort").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every directory")
async def test_read_only_directory(read_only: Path) -> None:
    """A start on a directory that can't be written is refused with a single line."""
    code, line = await refused(read_only / "store", *SMALL)
    assert (code, "Permission denied" in line) == (1, True)


async def test_directory_that_nobody_may_write(tmp_path: Path) -> None:
    """A start on a file system that takes no files is refused with a single line, also for root."""
    del tmp_path
    code, line = await refused(Path("/proc/reput-store"), *SMALL)
    assert (code, "/proc/reput-store" in line) == (1, True)


async def test_port_is_free_again_after_a_kill(tmp_path: Path) -> None:
    """A restart on the same port needs no waiting."""
    port = str(free_port())
    for _ in range(2):
        async with process(tmp_path, *SMALL, "--port", port) as child, child.client() as client:
            await client.append.Append(batch(b"x"))
            await child.end(signal.SIGKILL)


async def test_status_while_the_log_is_recovered(tmp_path: Path) -> None:
    """During recovery GetStatus has the scan's progress, and log lines have it, too.

    Every other call is refused with RECOVERING, and health is not serving.
    """
    async with process(tmp_path, *LAZY) as child, child.client() as client:
        for _ in range(160):
            await client.append.Append(batch(bytes(1_000)))
        await child.end(signal.SIGKILL)
    for name in ("queue_offsets", "queue_offsets.tmp"):
        (tmp_path / "reput" / name).unlink(missing_ok=True)
    child = await Process.start(tmp_path, *LAZY, "--port", str(port := free_port()), failpoints="file.read=sleep:2000")
    child.port = port
    try:
        await child.wait_line("recovering: segment ")
        async with child.client() as client:
            seen = []
            while not seen or seen[-1].state == log_pb.LOG_STATE_RECOVERING:
                seen.append(await client.log.GetStatus(log_pb.GetStatusRequest(), wait_for_ready=True))
                if len(seen) == 1:
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await client.append.Append(batch(b"early"))
                    assert Refusal(refused.value).reason == "RECOVERING"
                    health = health_pb2_grpc.HealthStub(client.channel)
                    answer = await health.Check(health_pb2.HealthCheckRequest())
                    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
                await asyncio.sleep(0.1)
            assert seen[0].state == log_pb.LOG_STATE_RECOVERING
            assert seen[0].segment_size_bytes == SEGMENT_SIZE
            numbers = [status.recovery_progress.segment_number for status in seen]
            assert numbers == sorted(numbers)
            assert numbers[-1] == seen[-1].recovery_progress.segment_count == 3
            assert (
                0 < seen[-1].recovery_progress.scanned_bytes <= seen[-1].recovery_progress.target_bytes + SEGMENT_SIZE
            )
            assert len(await stored(client)) == 160
        await child.end()
        assert any("recovering: segment 2 of 3, " in line for line in child.lines)
    finally:
        if child.child.returncode is None:
            await child.end(signal.SIGKILL)
