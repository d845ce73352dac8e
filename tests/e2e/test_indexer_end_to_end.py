# SPDX-License-Identifier: Apache-2.0
"""CommitLog and Indexer as processes: kills of either, starts in any order, and starts that can't be."""

import asyncio
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.indexer.v1 import query_service_pb2 as query_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb

from tests.support.commitlog import SEGMENT_SIZE, message
from tests.support.patience import LIMIT_S
from tests.support.served_commitlog import Process as LogProcess
from tests.support.served_indexer import Client, Process, process
from tests.support.service_process import digest
from tests.support.surroundings import free_port

pytestmark = pytest.mark.slow

T = "orders"
SEGMENTS = ("--segment-size-bytes", str(SEGMENT_SIZE))


async def start_log(data_dir: Path, port: int) -> LogProcess:
    """A CommitLog that serves."""
    return await (await LogProcess.start(data_dir, *SEGMENTS, "--port", str(port))).wait_serving()


def new(index: int) -> append_pb.AppendMessage:
    """Message number `index`."""
    properties = {"KEYS": f"all k{index % 7}", "TAGS": "ab"[index % 2]}
    return message(b"body %d" % index, topic=T, queue_id=index % 4, properties=properties)


async def put(log: LogProcess, count: int, start: int = 0) -> int:
    """Append messages, and return an offset above all of them."""
    end = 0
    async with log.client() as client:
        for first in range(start, start + count, 50):
            batch = [new(index) for index in range(first, min(first + 50, start + count))]
            result = (await client.append.Append(append_pb.AppendRequest(messages=batch))).result
            end = result.physical_offsets[-1] + 1
    return end


async def answers(client: Client) -> dict[str, Any]:
    """Ask the same questions, whose answers must not change."""
    found: dict[str, Any] = {}
    for queue_id in range(4):
        request = queue_pb.PullRequest(
            topic=T, queue_id=queue_id, message_count_max=4096, size_bytes_max=8 << 20, tag_expression="a"
        )
        found[f"pull {queue_id}"] = [entry.body for entry in (await client.queues.Pull(request)).messages]
    for key in ("all", "k3"):
        by_key = query_pb.QueryByKeyRequest(topic=T, key=key, page_size=1024)
        found[key] = [entry.body for entry in (await client.queries.QueryByKey(by_key)).messages]
    by_time = query_pb.QueryByTimeRequest(topic=T, page_size=1024)
    page = await client.queries.QueryByTime(by_time)
    found["time"] = [(entry.queue_id, entry.queue_offset, entry.body) for entry in page.messages]
    by_id = query_pb.QueryByIdRequest(message_id=page.messages[17].offset_message_id)
    found["id"] = (await client.queries.QueryById(by_id)).message.body
    return found


async def patient_answers(client: Client) -> dict[str, Any]:
    """Return the answers once the Indexer has found the log again.

    Until then it is UNAVAILABLE, so clients may retry.
    """
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return await answers(client)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)


async def test_the_same_answers_after_every_kill(tmp_path: Path) -> None:
    """No message is lost or repeated after SIGKILL of the Indexer, of the CommitLog, or of both.

    New messages arrive in between.
    """
    port = free_port()
    log = await start_log(tmp_path, port)
    flags = ("--flush-interval-ms", "50", "--flush-thorough-interval-ms", "200", "--port", str(free_port()))
    indexer: Process | None = None
    count = 0
    try:
        for victims in ("", "indexer", "commitlog", "indexer commitlog", "indexer"):
            count += 150
            end = await put(log, 150, count - 150)
            if indexer is None:
                indexer = await Process.start(tmp_path, "--commitlog-target", f"127.0.0.1:{port}", *flags)
                await indexer.wait_serving()
            async with indexer.client() as client:
                await client.wait_indexed(end)
                before = await answers(client)
            assert len(before["all"]) == len(before["time"]) == count
            assert before["all"] == [b"body %d" % index for index in reversed(range(count))]
            if "indexer" in victims:
                await indexer.end(signal.SIGKILL)
            if "commitlog" in victims:
                await log.end(signal.SIGKILL)
                log = await start_log(tmp_path, port)
            if "indexer" in victims:
                indexer = await Process.start(tmp_path, "--commitlog-target", f"127.0.0.1:{port}", *flags)
                await indexer.wait_serving()
            async with indexer.client() as client:
                await client.wait_indexed(end)
                assert await patient_answers(client) == before
        assert await indexer.end() == 0
    finally:
        for child in (indexer, log):
            if child is not None and child.child.returncode is None:
                await child.end(signal.SIGKILL)


async def test_indexes_that_are_lost_come_back_the_same(tmp_path: Path) -> None:
    """After the indexes, or only their progress file, are deleted the next start builds the same queue files."""
    port = free_port()
    log = await start_log(tmp_path, port)
    try:
        end = await put(log, 400)
        queue_dir, index_dir = tmp_path / "consumequeue", tmp_path / "index"
        built = []
        for lost in (
            (),
            (queue_dir, index_dir, tmp_path / "reput" / "index_progress"),
            (tmp_path / "reput" / "index_progress",),
        ):
            for path in lost:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            async with process(tmp_path, f"127.0.0.1:{port}") as indexer:
                async with indexer.client() as client:
                    await client.wait_indexed(end)
                    assert len((await answers(client))["all"]) == 400
                assert await indexer.end() == 0
            built.append(digest(queue_dir))
        assert built[0] == built[1] == built[2]
    finally:
        await log.end(signal.SIGKILL)


async def test_the_indexer_may_be_first(tmp_path: Path) -> None:
    """An Indexer that starts before the CommitLog serves, waits, and catches up by itself."""
    port = free_port()
    async with process(tmp_path, f"127.0.0.1:{port}") as indexer, indexer.client() as client:
        assert (await client.status()).last_error != "" or (await client.status()).state == 2
        log = await start_log(tmp_path, port)
        try:
            await client.wait_indexed(await put(log, 100))
        finally:
            await log.end(signal.SIGKILL)


async def ended(child: Process) -> tuple[int, str]:
    """Return the exit code and the output of a start that must fail."""
    async with asyncio.timeout(LIMIT_S):
        code = await child.wait_ended()
    return code, "".join(child.lines)


async def test_starts_that_cannot_be(tmp_path: Path) -> None:
    """A port in use, a directory in use, and files of another size give a clear line each and their exit code."""
    port = free_port()
    log = await start_log(tmp_path / "a", port)
    try:
        end = await put(log, 100)
        async with process(tmp_path / "a", f"127.0.0.1:{port}") as indexer:
            async with indexer.client() as client:
                await client.wait_indexed(end)
            code, text = await ended(await Process.start(tmp_path / "b", "--port", str(indexer.port)))
            assert (code, "in use" in text) == (4, True)
            code, text = await ended(await Process.start(tmp_path / "a"))
            assert (code, "another process uses this directory" in text) == (5, True)
            assert await indexer.end() == 0
        for flag, pattern in (
            ("--queue-file-size-bytes", r"consumequeue.*configured segment size is 4000 bytes"),
            ("--index-entry-capacity", r"index.*but the configured"),
        ):
            code, text = await ended(await Process.start(tmp_path / "a", flag, "4000"))
            assert code == 1
            assert re.search(pattern, text)
            assert "Traceback" not in text
        code, text = await ended(await Process.start(tmp_path / "a", "--queue-file-size-bytes", "4001"))
        assert (code, "multiple of 20" in text) == (2, True)
    finally:
        await log.end(signal.SIGKILL)


@pytest.mark.parametrize("point", ["file.sync=raise", "index_file.before_sync=raise"])
async def test_a_failing_disk_ends_the_process(tmp_path: Path, point: str) -> None:
    """A failed sync ends the process, because the content of the disk is unknown.

    The next process builds the indexes again.
    """
    port = free_port()
    log = await start_log(tmp_path, port)
    try:
        end = await put(log, 100)
        flags = ("--flush-interval-ms", "20", "--flush-thorough-interval-ms", "20")
        child = await Process.start(tmp_path, "--commitlog-target", f"127.0.0.1:{port}", *flags, failpoints=point)
        code, _ = await ended(child)
        assert code == 3
        async with process(tmp_path, f"127.0.0.1:{port}") as indexer, indexer.client() as client:
            await client.wait_indexed(end)
            assert len((await answers(client))["all"]) == 100
    finally:
        await log.end(signal.SIGKILL)
