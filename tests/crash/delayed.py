# SPDX-License-Identifier: Apache-2.0
"""Checks of delayed messages: each comes to its topic once, in the order of its level, when it is due.

`check.settle` compares each record by itself; these checks compare the records of a level with each other, and
config/delayOffset.json with the deliveries. Callers: a single event loop.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.common.v1.message_pb2 import StoredMessage
from reput.delivery.v1 import delay_service_pb2 as delay_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb

from libs.formats import store_layout
from libs.formats.config import delay_offsets_json
from libs.formats.records.delay_level import SCHEDULE_TOPIC, parse_levels
from tests.crash.history import DELAY, History, Sent
from tests.crash.live_store import DELAY_LEVELS_TEXT, LiveStore

DELAYS_MS = parse_levels(DELAY_LEVELS_TEXT)
DELIVERY_TIMEOUT_S = 20.0
DELIVERY_LOOK_S = 0.1


def check_copies(history: History, messages: Sequence[StoredMessage], *, min_physical_offset: int) -> list[str]:
    """Compare copies with the records that waited. Records before the minimum may be left out: Indexers forget them."""
    wrong: list[str] = []
    waiting: dict[int, dict[int, StoredMessage]] = defaultdict(dict)
    for message in messages:
        sent = history.messages.get(message.flag)
        if sent is None or not sent.is_delayed:
            continue
        level = waiting[level_of(sent)]
        if message.topic == SCHEDULE_TOPIC:
            level[sent.number] = message
        elif (record := level.pop(sent.number, None)) is not None:
            wrong += [f"message {sent.number} is delivered {what}" for what in _differences(sent, record, message)]
            left = [
                number
                for number, one in level.items()
                if min_physical_offset <= one.physical_offset < record.physical_offset
            ]
            wrong += [f"message {sent.number} is delivered, and {left[:5]} before it are not"] if left else []
    return wrong


def check_file(data_dir: Path, history: History, *, min_physical_offset: int) -> list[str]:
    """The positions in config/delayOffset.json may be behind the deliveries, and are never ahead of them."""
    offsets = offsets_of(data_dir)
    return [
        f"delayOffset.json has {offsets}, and message {sent.number} of level {level_of(sent)} at queue offset "
        f"{sent.queue_offset} is not delivered"
        for sent in _undelivered(history, min_physical_offset)
        if sent.queue_offset < offsets.get(level_of(sent), 0)
    ]


async def wait_delivered(store: LiveStore, history: History, *, min_physical_offset: int) -> list[str]:
    """Wait until there is a copy of each delayed message. Returns the messages without a copy, and the reason."""
    log, delays = store.commitlog(), store.delays()
    waiting = {sent.number for sent in _undelivered(history, min_physical_offset)}
    try:
        async with asyncio.timeout(DELIVERY_TIMEOUT_S):
            while waiting:
                start = (await log.log.GetStatus(log_pb.GetStatusRequest())).min_physical_offset
                request = log_pb.StreamRecordsRequest(start_physical_offset=start)
                async for step in log.log.StreamRecords(request):
                    waiting -= {one.flag for one in step.messages if one.topic != SCHEDULE_TOPIC}
                await asyncio.sleep(DELIVERY_LOOK_S)
    except TimeoutError:
        reason: object = "does not answer"
        with contextlib.suppress(grpc.aio.AioRpcError):
            reason = await delays.GetDelayLevels(delay_pb.GetDelayLevelsRequest(), timeout=DELIVERY_TIMEOUT_S)
        return [f"delayed messages were not delivered: {sorted(waiting)[:20]}, Delivery says {reason}"]
    return []


async def level_ends(store: LiveStore) -> dict[int, int]:
    """The end of the queue of each level, by the Indexer."""
    request = queue_pb.ListQueuesRequest(topic=SCHEDULE_TOPIC)
    queues = (await store.indexer().queues.ListQueues(request)).queues
    return {queue.queue_id + 1: queue.max_queue_offset for queue in queues if queue.max_queue_offset}


def check_file_at_end(data_dir: Path, ends: dict[int, int]) -> list[str]:
    """After deliveries of all messages and an orderly stop the file has the ends of all levels."""
    offsets = offsets_of(data_dir)
    return [f"delayOffset.json has {offsets} after the last delivery, not {ends}"] if offsets != ends else []


def offsets_of(data_dir: Path) -> dict[int, int]:
    """The positions in config/delayOffset.json, by level; none if there is no file."""
    with contextlib.suppress(FileNotFoundError):
        return delay_offsets_json.loads((data_dir / store_layout.DELAY_OFFSETS).read_text()).offsets
    return {}


def level_of(sent: Sent) -> int:
    """The level of a delayed message."""
    return int(sent.properties[DELAY])


def _undelivered(history: History, min_physical_offset: int) -> list[Sent]:
    return [
        sent
        for sent in history.stored()
        if sent.is_delayed and sent.copy_physical_offset < 0 and sent.physical_offset >= min_physical_offset
    ]


def _differences(sent: Sent, record: StoredMessage, copy: StoredMessage) -> Iterator[str]:
    early_ms = record.store_time_ms + DELAYS_MS[level_of(sent) - 1] - copy.store_time_ms
    if early_ms > 0:
        yield f"{early_ms} ms too early"
    if str(copy.queue_id) != record.properties["REAL_QID"]:
        yield f"to queue {copy.queue_id}, not {record.properties['REAL_QID']}"
