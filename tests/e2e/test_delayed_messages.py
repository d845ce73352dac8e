# SPDX-License-Identifier: Apache-2.0
"""Messages with a delay level over real services: they wait, arrive in order, each once, also after kills."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK, StoredMessage
from reput.delivery.v1 import delay_service_pb2 as delay_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb

from libs.formats.config import delay_offsets_json
from tests.support import served_commitlog as log_served
from tests.support import served_delivery
from tests.support import served_indexer as indexer_served
from tests.support.commitlog import message
from tests.support.patience import LIMIT_S
from tests.support.served_indexer import Client
from tests.support.surroundings import free_port

pytestmark = pytest.mark.slow

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = "1s 2s"
T = "orders"


def delayed(number: int, level: int, **fields: object) -> append_pb.AppendMessage:
    """Message `number`, for queue 0 or 1 of the topic."""
    properties = {"KEYS": f"key{number}", "TAGS": "a", "DELAY": str(level), "mine": "x"}
    return message(b"%d" % number, topic=T, properties=properties, **{"queue_id": number % 2, **fields})


def delayed_request(numbers: Iterable[int]) -> append_pb.AppendRequest:
    """Messages of level 1, which are all due at the same time."""
    batch = [delayed(number, 1) for number in numbers]
    return append_pb.AppendRequest(messages=batch, durability=DURABILITY_LOCAL_DISK)


async def pull(indexer: Client, topic: str, queue_id: int, count: int) -> list[StoredMessage]:
    """Return the first messages of a queue, once it has this many."""
    found: list[StoredMessage] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            request = queue_pb.PullRequest(
                topic=topic,
                queue_id=queue_id,
                queue_offset=len(found),
                message_count_max=4096,
                wait=Duration(seconds=1),
            )
            try:
                found += (await indexer.queues.Pull(request)).messages
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)  # it has just begun
    return found


async def levels_of(
    delivery: served_delivery.Client, are_so: Callable[[Sequence[delay_pb.DelayLevel]], bool]
) -> Sequence[delay_pb.DelayLevel]:
    """Return the delay levels, once they are as expected."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                levels = (await delivery.delays.GetDelayLevels(delay_pb.GetDelayLevelsRequest())).levels
                if are_so(levels):
                    return levels
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(0.02)  # it may be reading the journal


def offsets(data_dir: Path) -> dict[int, int]:
    """Return the offsets in delayOffset.json, by level, or nothing if the file is missing."""
    with contextlib.suppress(FileNotFoundError):
        return delay_offsets_json.loads((data_dir / "config" / "delayOffset.json").read_text()).offsets
    return {}


class Stack:
    """A store with a Delivery."""

    def __init__(self, log: log_served.Client, indexer: Client, delivery: served_delivery.Client) -> None:
        self.log, self.indexer, self.delivery = log, indexer, delivery


@contextlib.asynccontextmanager
async def running(directory: Path, levels: str = LEVELS) -> AsyncIterator[Stack]:
    """A store in a directory, and a Delivery as a process. Delivery stops in order, before the Indexer."""
    async with (
        log_served.served(directory, message_delay_level=levels) as (log_service, log),
        indexer_served.served(directory, f"127.0.0.1:{log_service.server.port}") as (index_service, indexer),
    ):
        targets = (f"127.0.0.1:{log_service.server.port}", f"127.0.0.1:{index_service.server.port}")
        async with (
            served_delivery.process(*targets, "--message-delay-level", levels) as process,
            served_delivery.client_of(f"127.0.0.1:{process.port}") as delivery,
        ):
            yield Stack(log, indexer, delivery)
            assert await process.end(signal.SIGTERM) == 0


async def test_they_arrive_when_due(tmp_path: Path) -> None:
    """Messages of two levels wait in the schedule topic, then arrive in their queues unchanged and in order."""
    async with running(tmp_path) as stack:
        sent = append_pb.AppendRequest(messages=[delayed(number, 1 + number // 10) for number in range(20)])
        result = (await stack.log.append.Append(sent)).result
        assert list(result.queue_ids) == [0] * 10 + [1] * 10
        assert list(result.queue_offsets) == list(range(10)) * 2
        waiting = await pull(stack.indexer, SCHEDULE, 1, 10)
        assert waiting[3].properties["REAL_TOPIC"] == T
        for queue_id in (0, 1):
            found = await pull(stack.indexer, T, queue_id, 10)
            assert [int(one.body) for one in found] == list(range(queue_id, 20, 2))
            for one in found:
                number = int(one.body)
                wait_ms = one.store_time_ms - result.store_time_ms
                delay_ms = 1_000 * (1 + number // 10)
                assert wait_ms >= delay_ms
                assert dict(one.properties).items() >= {"KEYS": f"key{number}", "TAGS": "a", "mine": "x"}.items()
                assert not {"DELAY", "REAL_TOPIC", "REAL_QID"} & one.properties.keys()
                assert one.born_host == waiting[0].born_host
    assert offsets(tmp_path) == {1: 10, 2: 10}


async def test_a_level_that_the_log_refuses(tmp_path: Path) -> None:
    """A topic that is not writable delays its messages until it is writable again.

    Messages of other levels are delivered.
    """
    async with running(tmp_path) as stack:
        log, indexer = stack.log, stack.indexer
        await log.append.Append(
            append_pb.AppendRequest(messages=[delayed(0, 1), delayed(2, 1), message(topic="other")])
        )
        await log.append.Append(
            append_pb.AppendRequest(messages=[message(b"2s", topic="other", properties={"DELAY": "2"})])
        )
        await log.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=T, is_writable=False))
        assert (await pull(indexer, "other", 0, 2))[1].body == b"2s"
        level, _ = await levels_of(stack.delivery, lambda levels: bool(levels[0].last_error))
        assert "TOPIC_FORBIDDEN" in level.last_error
        assert (level.level, level.delay.ToMilliseconds(), level.waiting_count) == (1, 1_000, 2)
        assert level.lateness.ToMilliseconds() > 900
        await log.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=T, is_writable=True))
        assert [one.body for one in await pull(indexer, T, 0, 2)] == [b"0", b"2"]


async def test_the_state_of_levels(tmp_path: Path) -> None:
    """Delivery tells how many messages wait in each level, and the reason while it can't reach the Indexer."""
    index_port = str(free_port())
    async with log_served.served(tmp_path, message_delay_level="1s 1h") as (log_service, log):
        targets = (f"127.0.0.1:{log_service.server.port}", f"127.0.0.1:{index_port}")
        async with contextlib.AsyncExitStack() as stack:
            index = indexer_served.process(tmp_path, targets[0], "--port", index_port)
            process = await stack.enter_async_context(index)
            delivery = await stack.enter_async_context(
                served_delivery.process(*targets, "--message-delay-level", "1s 1h")
            )
            client = await stack.enter_async_context(served_delivery.client_of(f"127.0.0.1:{delivery.port}"))
            for number in range(2):
                await log.append.Append(append_pb.AppendRequest(messages=[delayed(number, 2)]))
            first, second = await levels_of(client, lambda levels: levels[1].waiting_count == 2)
            assert (first.level, first.delay.seconds, first.waiting_count, first.last_error) == (1, 1, 0, "")
            assert (second.level, second.delay.seconds, second.lateness.seconds, second.last_error) == (2, 3600, 0, "")
            await process.end(signal.SIGKILL)
            first, second = await levels_of(client, lambda levels: bool(levels[0].last_error))
            assert "indexer" in first.last_error
            assert (second.waiting_count, second.last_error) == (2, "")
            again = indexer_served.process(tmp_path, targets[0], "--port", index_port)
            async with again as process, process.client() as indexer:
                await log.append.Append(append_pb.AppendRequest(messages=[delayed(0, 1)]))
                assert [one.body for one in await pull(indexer, T, 0, 1)] == [b"0"]
                await levels_of(client, lambda levels: not levels[0].last_error)


async def test_a_store_without_a_delivery(tmp_path: Path) -> None:
    """It delivers no messages, and a Delivery that starts delivers all messages that became due."""
    async with (
        log_served.served(tmp_path, message_delay_level="1s") as (log_service, log),
        indexer_served.served(tmp_path, f"127.0.0.1:{log_service.server.port}") as (index_service, indexer),
    ):
        await log.append.Append(append_pb.AppendRequest(messages=[delayed(0, 1)]))
        await pull(indexer, SCHEDULE, 0, 1)
        before = (await log.log.GetStatus(log_pb.GetStatusRequest())).max_physical_offset
        await asyncio.sleep(1.2)
        assert (await log.log.GetStatus(log_pb.GetStatusRequest())).max_physical_offset == before
        targets = (f"127.0.0.1:{log_service.server.port}", f"127.0.0.1:{index_service.server.port}")
        async with served_delivery.process(*targets, "--message-delay-level", "1s"):
            assert [one.body for one in await pull(indexer, T, 0, 1)] == [b"0"]


async def test_a_topic_with_fewer_queues(tmp_path: Path) -> None:
    """A message for a queue that was removed arrives in another queue."""
    async with running(tmp_path, "1s") as stack:
        await stack.log.append.Append(
            append_pb.AppendRequest(messages=[delayed(0, 1), delayed(1, 1, queue_id=3), delayed(2, 1)])
        )
        await stack.log.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=T, write_queue_count=1))
        assert [one.body for one in await pull(stack.indexer, T, 0, 3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("write", [2, 3, 4])
async def test_kills(tmp_path: Path, write: int) -> None:
    """Every message arrives once and in order after kills of Delivery and of the log at any moment of a delivery.

    The log ends after a write: the first begins an ownership, or is the Indexer's, which appends changes of offsets.
    """
    count, last_count = 200, 20
    flags = ("--message-delay-level", "1s")
    port = str(free_port())
    target = f"127.0.0.1:{port}"
    log = await log_served.Process.start(tmp_path, *flags, "--port", port)
    await log.wait_serving()
    async with log.client() as appender:
        await appender.append.Append(delayed_request(range(count)))
    async with indexer_served.process(tmp_path, target) as indexer, indexer.client() as client:
        targets = ("--commitlog-target", target, "--indexer-target", f"127.0.0.1:{indexer.port}")
        for failpoints in ("delay.before_append=kill", "delay.after_append=kill"):
            killed = await served_delivery.Process.start(Path(), *targets, *flags, failpoints=failpoints)
            assert await killed.wait_ended() == -signal.SIGKILL
        async with log.client() as appender:
            await appender.append.Append(delayed_request(range(count, count + last_count)))
        await log.end(signal.SIGKILL)
        failpoints = f"append.after_write=kill@{write}"
        log = await log_served.Process.start(tmp_path, *flags, "--port", port, failpoints=failpoints)
        await log.wait_serving()
        async with served_delivery.process(*targets[1::2], *flags) as delivery:
            assert await log.wait_ended() == -signal.SIGKILL
            log = await log_served.Process.start(tmp_path, *flags, "--port", port)
            await log.wait_serving()
            for queue_id in (0, 1):
                found = [int(one.body) for one in await pull(client, T, queue_id, (count + last_count) // 2)]
                assert found == list(range(queue_id, count + last_count, 2))
            async with served_delivery.client_of(f"127.0.0.1:{delivery.port}") as levels:
                await levels_of(levels, lambda levels: levels[0].waiting_count == 0)  # it owns the journal
            assert await delivery.end(signal.SIGTERM) == 0
        assert await indexer.end(signal.SIGTERM) == 0
    assert offsets(tmp_path) == {1: count + last_count}
    assert await log.end() == 0
