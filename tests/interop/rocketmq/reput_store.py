# SPDX-License-Identifier: Apache-2.0
"""Reput's CommitLog and Indexer as processes on a common directory, with every way to read asked for all messages.

They deliver no delayed messages, except while a Delivery runs (`delivering`).
"""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.common.v1 import message_pb2
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.indexer.v1 import query_service_pb2 as query_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb

from libs.formats.state.system_topics import STATE_TOPIC
from tests.interop.rocketmq.stored import Draft, Queue, Sizes, Stored, from_reput, to_reput
from tests.support import served_delivery
from tests.support.served_commitlog import Client as LogClient
from tests.support.served_commitlog import served as log_served
from tests.support.served_indexer import Client as IndexClient
from tests.support.served_indexer import served as index_served
from tests.support.service_process import ServiceProcess
from tests.support.trusted import trusted

STORE_HOST = "127.0.0.1:10911"
QUEUE_COUNT = 64
CALLS_AT_ONCE = 32
SETTLE_TIMEOUT_S = 120
PATIENCE_MS = 60_000
"""The timeout for answers of the CommitLog, long because machines that test are busy."""
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1)]
QUIET_LEVELS = {"debug", "info"}

Q = TypeVar("Q")
A = TypeVar("A")


class LogProcess(ServiceProcess):
    """The CommitLog."""

    service = "commitlog"


class IndexProcess(ServiceProcess):
    """The Indexer."""

    service = "indexer"


class ReputStore:
    """Both services. `running` starts them as processes, `served` within this process."""

    def __init__(
        self, target: str, index_target: str, log: LogClient, index: IndexClient, *processes: ServiceProcess
    ) -> None:
        self.target, self.index_target = target, index_target
        self.log = log
        self.index = index
        self._processes = processes

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        directory: Path,
        sizes: Sizes,
        *,
        crc_property: bool = True,
        store_host: str = STORE_HOST,
        log_dirs: str = "",
        leader_target: str = "",
    ) -> AsyncIterator["ReputStore"]:
        """Services on a directory, killed at the end of the block if they still run. With a leader they follow it."""
        role = ("--role", "slave", "--leader-target", leader_target, "--replica-id", "b") if leader_target else ()
        async with contextlib.AsyncExitStack() as stack:
            log = await LogProcess.start(
                directory,
                *("--segment-size-bytes", str(sizes.segment_size_bytes), "--store-host", store_host),
                *("--default-queue-count", str(QUEUE_COUNT), "--crc-property", str(crc_property).lower()),
                *("--disk-reserve-bytes", "0", "--log-dirs", log_dirs),
                *role,
            )
            stack.push_async_callback(_kill, log)
            await log.wait_serving()
            index = await IndexProcess.start(
                directory,
                *("--commitlog-target", f"127.0.0.1:{log.port}", "--reconnect-ms-max", "100"),
                *("--commitlog-timeout-ms", str(PATIENCE_MS)),
                *("--queue-file-size-bytes", str(sizes.queue_file_size_bytes)),
                *("--index-slot-count", str(sizes.index_slot_count)),
                *("--index-entry-capacity", str(sizes.index_entry_capacity)),
            )
            stack.push_async_callback(_kill, index)
            await index.wait_serving()
            channels = [
                await stack.enter_async_context(
                    trusted(grpc.aio.insecure_channel(f"127.0.0.1:{process.port}", options=CHANNEL_OPTIONS))
                )
                for process in (log, index)
            ]
            targets = (f"127.0.0.1:{log.port}", f"127.0.0.1:{index.port}")
            yield cls(*targets, LogClient(channels[0]), IndexClient(channels[1]), index, log)

    @classmethod
    @contextlib.asynccontextmanager
    async def served(
        cls,
        directory: Path,
        sizes: Sizes,
        *,
        crc_property: bool = True,
        store_host: str = STORE_HOST,
        log_dirs: str = "",
    ) -> AsyncIterator["ReputStore"]:
        """Both services inside this process, where they start faster.

        They are stopped in order at the end of the block.
        """
        options = {"crc_property": crc_property, "store_host": store_host, "default_queue_count": QUEUE_COUNT}
        options["log_dirs"] = log_dirs
        names = {"queue_file_size_bytes", "index_slot_count", "index_entry_capacity"}
        settings = {name: getattr(sizes, name) for name in names}
        async with (
            log_served(directory, segment_size_bytes=sizes.segment_size_bytes, **options) as (log, log_client),
            index_served(directory, f"127.0.0.1:{log.server.port}", **settings) as (index, index_client),
        ):
            targets = (f"127.0.0.1:{log.server.port}", f"127.0.0.1:{index.server.port}")
            yield cls(*targets, log_client, index_client)

    @contextlib.asynccontextmanager
    async def delivering(self) -> AsyncIterator[None]:
        """Have a Delivery on the store, which is stopped in order at the end of the block."""
        async with served_delivery.process(self.target, self.index_target) as delivery:
            yield
            assert await delivery.end() == 0

    async def append(self, drafts: Sequence[Draft]) -> list[tuple[int, int, int]]:
        """Append a batch, and return (physical offset, queue offset, store time) for each message."""
        request = append_pb.AppendRequest(messages=map(to_reput, drafts))
        result = (await self.log.append.Append(request)).result
        rows = zip(result.physical_offsets, result.queue_offsets, strict=True)
        return [(physical, queue, result.store_time_ms) for physical, queue in rows]

    async def settle(self, end: int = 0) -> int:
        """Wait until everything, or everything up to `end`, is indexed. Return the end."""
        end = end or (await self.log.log.GetStatus(log_pb.GetStatusRequest())).max_physical_offset
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            while True:
                status = await self.index.index.GetStatus(index_pb.GetStatusRequest())
                if status.state == index_pb.REPUT_STATE_LIVE and status.indexed_physical_offset >= end:
                    return end
                assert status.state != index_pb.REPUT_STATE_STOPPED, status
                await asyncio.sleep(0.02)

    async def walk(self) -> list[Stored]:
        """Every message in the order of the log, except Reput's own messages."""
        start: int = (await self.log.log.GetStatus(log_pb.GetStatusRequest())).min_physical_offset
        found: list[Stored] = []
        request = log_pb.StreamRecordsRequest(start_physical_offset=start, view=log_pb.RECORD_VIEW_MESSAGES)
        async for step in self.log.log.StreamRecords(request):
            found += [from_reput(message) for message in step.messages if message.topic != STATE_TOPIC]
        return found

    async def read(self) -> list[Queue]:
        """Return every message by its queue offset. Queues that never had a message are left out."""
        found = []
        token = ""
        while True:
            page = await self.index.queues.ListQueues(queue_pb.ListQueuesRequest(page_token=token))
            queues = [queue for queue in page.queues if queue.max_queue_offset and queue.topic != STATE_TOPIC]
            found += [await self._read_queue(queue) for queue in queues]
            token = page.next_page_token
            if not token:
                return sorted(found, key=lambda queue: (queue.topic, queue.queue_id))

    async def _read_queue(self, queue: queue_pb.Queue) -> Queue:
        messages: list[message_pb2.StoredMessage] = []
        next_queue_offset = queue.min_queue_offset
        while next_queue_offset < queue.max_queue_offset:
            request = queue_pb.PullRequest(
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=next_queue_offset,
                message_count_max=4096,
                size_bytes_max=4 << 20,
            )
            answer = await self.index.queues.Pull(request)
            assert answer.status == queue_pb.PULL_STATUS_FOUND, (request, answer.status)
            messages += answer.messages
            next_queue_offset = answer.next_queue_offset
        rows = list(map(from_reput, messages))
        return Queue(queue.topic, queue.queue_id, queue.min_queue_offset, queue.max_queue_offset, rows)

    async def by_keys(
        self, keys: Sequence[tuple[str, str]], *, start_time_ms: int | None = None, end_time_ms: int | None = None
    ) -> list[list[Stored]]:
        """Return for each (topic, key) all messages with it, oldest first, stored in [start, end)."""
        start_time, end_time = _timestamp(start_time_ms), _timestamp(end_time_ms)

        async def ask(question: tuple[str, str]) -> list[Stored]:
            topic, key = question
            request = query_pb.QueryByKeyRequest(
                topic=topic, key=key, start_time=start_time, end_time=end_time, page_size=1024
            )
            return (await self._pages(self.index.queries.QueryByKey, request))[::-1]

        return await _all(ask, keys)

    async def by_time(self, topic: str, start_time_ms: int, end_time_ms: int) -> list[Stored]:
        """Return messages of a topic stored in [start, end), by queue and queue offset."""
        request = query_pb.QueryByTimeRequest(
            topic=topic,
            start_time=_timestamp(start_time_ms),
            end_time=_timestamp(end_time_ms),
            page_size=1024,
        )
        return await self._pages(self.index.queries.QueryByTime, request)

    async def by_times(self, times: Sequence[tuple[str, int, int]]) -> list[list[int]]:
        """Return for each (topic, queue id, time) the lower and the upper queue offset."""

        async def ask(question: tuple[str, int, int]) -> list[int]:
            topic, queue_id, time_ms = question
            offsets = []
            for boundary in (queue_pb.BOUNDARY_LOWER, queue_pb.BOUNDARY_UPPER):
                request = queue_pb.GetOffsetByTimeRequest(
                    topic=topic, queue_id=queue_id, time=_timestamp(time_ms), boundary=boundary
                )
                offsets.append((await self.index.queues.GetOffsetByTime(request)).queue_offset)
            return offsets

        return await _all(ask, times)

    async def by_ids(self, ids: Sequence[str]) -> list[Stored]:
        """Return the message of each offset message id."""

        async def ask(message_id: str) -> Stored:
            answer = await self.index.queries.QueryById(query_pb.QueryByIdRequest(message_id=message_id))
            return from_reput(answer.message)

        return await _all(ask, ids)

    async def _pages(self, call: Callable[[Any], Awaitable[Any]], request: Any) -> list[Stored]:
        found: list[Stored] = []
        while True:
            page = await call(request)
            found += map(from_reput, page.messages)
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def stop(self) -> None:
        """Stop both in order, and check that neither logged a warning."""
        for process in self._processes:
            assert await process.end() == 0
        self.check_quiet()

    async def kill(self) -> None:
        """Send SIGKILL to both, to the CommitLog first, so that the Indexer ends in the middle of its work."""
        for process in reversed(self._processes):
            process.child.send_signal(signal.SIGKILL)
        for process in self._processes:
            await process.wait_ended()

    def check_quiet(self, expected: Iterable[str] = ()) -> None:
        """Refuse unexpected warnings and errors in the logs."""
        loud = [
            line
            for process in self._processes
            for line in process.lines
            if json.loads(line).get("level") not in QUIET_LEVELS and not any(text in line for text in expected)
        ]
        assert not loud, loud


async def _all(ask: Callable[[Q], Awaitable[A]], questions: Sequence[Q]) -> list[A]:
    """Ask many questions, a few at once, and return the answers in order."""
    answers: list[Any] = [None] * len(questions)
    numbers = iter(range(len(questions)))

    async def work() -> None:
        for number in numbers:
            answers[number] = await ask(questions[number])

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLS_AT_ONCE):
            group.create_task(work())
    return answers


async def _kill(process: ServiceProcess) -> None:
    if process.child.returncode is None:
        await process.end(signal.SIGKILL)


def _timestamp(time_ms: int | None) -> Timestamp | None:
    if time_ms is None:
        return None
    return Timestamp(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)
