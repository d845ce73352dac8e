# SPDX-License-Identifier: Apache-2.0
"""A look: all questions are put to the services, and each answer is recorded as it came.

judge.py judges the answers; a failed call does not end a look. A look first waits until the Indexer has all of the log,
as long as its progress continues, and until all due messages are delivered. Callers: a single event loop, while no
other caller appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.commitlog.v1 import topic_service_pb2_grpc
from reput.delivery.v1 import delay_service_pb2 as delay_pb
from reput.indexer.v1 import consumer_offset_service_pb2 as offset_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.indexer.v1 import query_service_pb2 as query_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb
from reput.janitor.v1 import retention_service_pb2 as janitor_pb

from libs.formats.state.system_topics import DELIVERY_TOPIC, OWN_GROUPS
from tests.crash.live_store import LiveStore
from tests.crash.workload import STATUS_KEY
from tests.harm.expected import (
    GROUPS,
    KEY_COUNT,
    LATER,
    LEVELS,
    LOG,
    ORDERS,
    PARTS,
    QUEUES,
    RUNS,
    TAG,
    TOPICS,
    Expected,
    id_question,
    key_question,
    line_of_record,
    offset_line,
    queue_question,
    sent,
    time_question,
)
from tests.harm.judge import Answer, Look, Refusal

CALL_TIMEOUT_S = 20.0
CATCH_UP_S_MAX = 30.0
STANDSTILL_S_MAX = 4.0
"""An Indexer that says why it does not get on is not waited for any longer."""
DELIVERY_S_MAX = 6.0
LOOK_S = 0.02
ID_STEP = 9
"""Every so many-th message is asked for by its id."""
PAGE_SIZE = 50


class Questions:
    """The channels to the running services, and the questions that are asked through them."""

    def __init__(self, store: LiveStore) -> None:
        self._log = store.commitlog()
        self._index = store.indexer()
        self._janitor = store.janitor()
        self._delays = store.delays()
        self._topics = topic_service_pb2_grpc.TopicServiceStub(store.channel("commitlog"))

    async def look(self, when: str, expected: Expected) -> Look:
        """Ask all questions. The expected lines are copied, because they grow."""
        await self.wait_settled(expected)
        answers = {question: await _answer(ask) for question, ask in self._all(expected).items()}
        status = f"{await self._status()}\n{answers[LEVELS].refusal or ''}"
        return Look(when, answers, expected.copy().lines, status)

    async def wait_settled(self, expected: Expected) -> None:
        """Wait until the Indexer has all of the log and due messages are delivered, or a service gives a reason."""
        await self._wait_indexed()
        copies = expected.lines.get(queue_question(LATER, 0), [])
        end_s = asyncio.get_running_loop().time() + DELIVERY_S_MAX
        while asyncio.get_running_loop().time() < end_s:
            answer = await _answer(self._read_log)
            if answer.refusal is not None or set(copies) <= set(answer.lines):
                break
            await asyncio.sleep(LOOK_S)
        await self._wait_indexed()

    async def _wait_indexed(self) -> None:
        loop = asyncio.get_running_loop()
        end_s, still_since_s, place = loop.time() + CATCH_UP_S_MAX, loop.time(), -1
        while loop.time() < end_s:
            try:
                log = await self._log.log.GetStatus(log_pb.GetStatusRequest(), timeout=CALL_TIMEOUT_S)
                index = await self._index.index.GetStatus(index_pb.GetStatusRequest(), timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return
            if _is_settled(log, index):
                return
            if index.indexed_physical_offset != place:
                place, still_since_s = index.indexed_physical_offset, loop.time()
            if index.last_error and loop.time() - still_since_s > STANDSTILL_S_MAX:
                return
            await asyncio.sleep(LOOK_S)

    def _all(self, expected: Expected) -> dict[str, Callable[[], AsyncIterator[str]]]:
        asked: dict[str, Callable[[], AsyncIterator[str]]] = {LOG: self._read_log}
        for topic, queue_id in QUEUES:
            for tag in ("", TAG):
                asked[queue_question(topic, queue_id, tag)] = _bound(self._pull, topic, queue_id, tag)
        for topic in (ORDERS, PARTS, LATER):
            for number in range(KEY_COUNT):
                asked[key_question(topic, f"key-{number}")] = _bound(self._by_key, topic, f"key-{number}")
            for start_ms in (0, expected.middle_time_ms):
                asked[time_question(topic, start_ms)] = _bound(self._by_time, topic, start_ms)
        for number in expected.numbers[-1::-ID_STEP]:
            one = sent(number)
            unique_id = one.properties["UNIQ_KEY"]
            asked[id_question(one.topic, unique_id)] = _bound(self._by_id, one.topic, unique_id)
        states = {GROUPS: self._list_groups, TOPICS: self._list_topics, RUNS: self._list_runs}
        return {**asked, **states, LEVELS: self._list_levels}

    async def _status(self) -> str:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: self._log.log.GetStatus(log_pb.GetStatusRequest(), timeout=CALL_TIMEOUT_S),
            lambda: self._index.index.GetStatus(index_pb.GetStatusRequest(), timeout=CALL_TIMEOUT_S),
            lambda: self._janitor.GetStatus(janitor_pb.GetStatusRequest(), timeout=CALL_TIMEOUT_S),
        ]
        texts = []
        for call in calls:
            try:
                texts.append(str(await call()))
            except grpc.aio.AioRpcError as error:
                texts.append(str(error.code()))
        return "\n".join(texts)

    async def _read_log(self) -> AsyncIterator[str]:
        status = await self._log.log.GetStatus(log_pb.GetStatusRequest(), timeout=CALL_TIMEOUT_S)
        request = log_pb.StreamRecordsRequest(start_physical_offset=status.min_physical_offset)
        async for step in self._log.log.StreamRecords(request, timeout=CALL_TIMEOUT_S):
            for message in step.messages:
                if message.topic != DELIVERY_TOPIC:
                    yield line_of_record(message)

    async def _pull(self, topic: str, queue_id: int, tag: str) -> AsyncIterator[str]:
        queue_offset, is_first = 0, True
        while True:
            request = queue_pb.PullRequest(
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                tag_expression=tag,
                message_count_max=PAGE_SIZE,
            )
            page = await self._index.queues.Pull(request, timeout=CALL_TIMEOUT_S)
            for message in page.messages:
                yield line_of_record(message)
            is_over = page.status in (
                queue_pb.PULL_STATUS_OFFSET_OVERFLOW_ONE,
                queue_pb.PULL_STATUS_NO_MESSAGE_IN_QUEUE,
                queue_pb.PULL_STATUS_NO_MATCHED_LOGIC_QUEUE,
            )
            if is_over:
                return
            if page.next_queue_offset <= queue_offset and not is_first:
                yield f"pull goes on at {page.next_queue_offset} after {queue_offset}"
                return
            queue_offset, is_first = page.next_queue_offset, False

    async def _by_key(self, topic: str, key: str) -> AsyncIterator[str]:
        token = ""
        while True:
            request = query_pb.QueryByKeyRequest(topic=topic, key=key, page_size=PAGE_SIZE, page_token=token)
            page = await self._index.queries.QueryByKey(request, timeout=CALL_TIMEOUT_S)
            for message in page.messages:
                yield line_of_record(message)
            if not (token := page.next_page_token):
                return

    async def _by_time(self, topic: str, start_ms: int) -> AsyncIterator[str]:
        token, start = "", Timestamp()
        start.FromMilliseconds(start_ms)
        while True:
            request = query_pb.QueryByTimeRequest(
                topic=topic, start_time=start if start_ms else None, page_size=PAGE_SIZE, page_token=token
            )
            page = await self._index.queries.QueryByTime(request, timeout=CALL_TIMEOUT_S)
            for message in page.messages:
                yield line_of_record(message)
            if not (token := page.next_page_token):
                return

    async def _by_id(self, topic: str, unique_id: str) -> AsyncIterator[str]:
        request = query_pb.QueryByIdRequest(topic=topic, message_id=unique_id)
        try:
            answer = await self._index.queries.QueryById(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if refusal_of(error).reason == "MESSAGE_NOT_FOUND":
                return
            raise
        yield line_of_record(answer.message)

    async def _list_groups(self) -> AsyncIterator[str]:
        page = await self._index.offsets.ListConsumerGroups(
            offset_pb.ListConsumerGroupsRequest(), timeout=CALL_TIMEOUT_S
        )
        for group in page.groups:
            for one in group.offsets if group.group not in OWN_GROUPS else ():
                yield offset_line(group.group, one.topic, one.queue_id, one.queue_offset)

    async def _list_topics(self) -> AsyncIterator[str]:
        page = await self._topics.ListTopics(topic_pb.ListTopicsRequest(page_size=100), timeout=CALL_TIMEOUT_S)
        for one in page.topics:
            rights = "".join(letter for letter, has in (("r", one.is_readable), ("w", one.is_writable)) if has)
            yield f"{one.name} {one.read_queue_count}/{one.write_queue_count} {rights}"

    async def _list_levels(self) -> AsyncIterator[str]:
        answer = await self._delays.GetDelayLevels(delay_pb.GetDelayLevelsRequest(), timeout=CALL_TIMEOUT_S)
        for one in answer.levels:
            yield f"level {one.level}: {one.waiting_count} wait"

    async def _list_runs(self) -> AsyncIterator[str]:
        page = await self._janitor.ListHistory(janitor_pb.ListHistoryRequest(page_size=100), timeout=CALL_TIMEOUT_S)
        for run in page.runs:
            yield f"{run.time.ToJsonString()} deleted {run.deleted_segment_count}, {len(run.decisions)} decisions"


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """A failed call's code, reason and text."""
    details = dict(error.trailing_metadata() or ()).get(STATUS_KEY)
    reasons = [
        ErrorInfo.FromString(detail.value).reason
        for detail in (Status.FromString(details).details if isinstance(details, bytes) else ())
        if detail.Is(ErrorInfo.DESCRIPTOR)
    ]
    return Refusal(error.code().name, "".join(reasons[:1]), error.details() or "")


async def _answer(ask: Callable[[], AsyncIterator[str]]) -> Answer:
    lines: list[str] = []
    try:
        async for line in ask():
            lines.append(line)  # noqa: PERF401 - what came before a refusal counts
    except grpc.aio.AioRpcError as error:
        return Answer(tuple(lines), refusal_of(error))
    return Answer(tuple(lines))


def _bound(ask: Callable[..., AsyncIterator[str]], *arguments: object) -> Callable[[], AsyncIterator[str]]:
    return lambda: ask(*arguments)


def _is_settled(log: log_pb.GetStatusResponse, index: index_pb.GetStatusResponse) -> bool:
    if index.state == index_pb.REPUT_STATE_STOPPED:
        return True
    return (
        index.state == index_pb.REPUT_STATE_LIVE
        and index.is_complete
        and index.indexed_physical_offset == log.confirmed_physical_offset
    )
