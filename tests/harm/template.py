# SPDX-License-Identifier: Apache-2.0
"""The stores that trials harm: a stopped store and a killed store, each with every kind of file.

Made once in each run, with the services themselves; a trial gets a copy. Small files make a store of a few hundred
messages have several of each.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.commitlog.v1 import topic_service_pb2_grpc
from reput.indexer.v1 import consumer_offset_service_pb2 as offset_pb
from reput.janitor.v1 import retention_service_pb2 as janitor_pb

from libs.formats import store_layout
from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.limits import KIB
from tests.crash.history import LOCAL_DISK
from tests.crash.live_store import LiveStore, Sizes
from tests.crash.nursery import Nursery
from tests.harm.expected import (
    COPY,
    GROUP,
    LATER,
    LEVELS,
    LOG,
    ORDERS,
    PARTS,
    QUEUES,
    RUNS,
    TOPICS,
    Expected,
    sent,
    time_question,
)
from tests.harm.look import CALL_TIMEOUT_S, Questions
from tests.support.patience import eventually

SIZES = Sizes(
    segment_size_bytes=64 * KIB,
    queue_file_size_bytes=30 * UNIT_SIZE_BYTES,
    index_slot_count=40,
    index_entry_capacity=150,
)
STOPPED, KILLED = "stopped", "killed"
STOP_ORDER = ("delivery", "janitor", "indexer", "commitlog")
"""All services: who calls others stops first."""
BATCH_COUNT = 10
EXPIRED_COUNT = 60
MESSAGE_COUNT = 250
MIDDLE_COUNT = 150
LAST_COUNT = 10
"""Messages that come right before the kill."""
PAUSE_S = 0.2
"""Longer than each interval of the services, and than the store time of a batch is behind the clock."""
SEGMENT_COUNT_MIN, QUEUE_FILE_COUNT_MIN, INDEX_FILE_COUNT_MIN, FILTER_COUNT_MIN = 3, 3, 3, 2


@dataclass(frozen=True, slots=True)
class Template:
    """A directory to copy, and its expected content."""

    data_dir: Path
    expected: Expected

    @property
    def files(self) -> list[str]:
        """All files below it."""
        return sorted(str(path.relative_to(self.data_dir)) for path in self.data_dir.rglob("*") if path.is_file())


async def start(store: LiveStore) -> None:
    """Start all services."""
    await store.start_commitlog("sync")
    await store.start_indexer()
    await store.start_janitor()
    await store.start_delivery()


async def append(store: LiveStore, expected: Expected, numbers: Iterable[int]) -> None:
    """Append messages in a batch to the disk, and take in the acknowledgements. Raises AioRpcError."""
    messages = [sent(number) for number in numbers]
    request = append_pb.AppendRequest(messages=[one.to_request() for one in messages], durability=LOCAL_DISK)
    expected.add(messages, (await store.commitlog().append.Append(request, timeout=CALL_TIMEOUT_S)).result)


async def commit(store: LiveStore, expected: Expected, topic: str, queue_id: int, queue_offset: int) -> None:
    """Commit an offset of the group. Raises AioRpcError."""
    offset = offset_pb.ConsumerOffset(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
    request = offset_pb.CommitConsumerOffsetRequest(group=GROUP, offsets=[offset])
    await store.indexer().offsets.CommitConsumerOffset(request, timeout=CALL_TIMEOUT_S)
    expected.commit(topic, queue_id, queue_offset)


async def make_templates(nursery: Nursery, directory: Path) -> dict[str, Template]:
    """Make both below a directory. Asserts that they have enough files of each kind."""
    store = LiveStore(nursery, directory / "store", SIZES)
    expected = Expected()
    templates = {}
    try:
        await start(store)
        await _fill(store, expected)
        assert await store.stop(*STOP_ORDER) == dict.fromkeys(STOP_ORDER, 0)
        templates[STOPPED] = _copy(store, directory / STOPPED, expected)
        await start(store)
        await append(store, expected, range(MESSAGE_COUNT, MESSAGE_COUNT + LAST_COUNT))
        await Questions(store).wait_settled(expected)
        await commit(store, expected, ORDERS, 1, 9)
        await asyncio.sleep(PAUSE_S)
        await store.kill()
        templates[KILLED] = _copy(store, directory / KILLED, expected)
    finally:
        await store.close()
    for template in templates.values():
        _check(template.files)
    return templates


async def _fill(store: LiveStore, expected: Expected) -> None:
    topics = topic_service_pb2_grpc.TopicServiceStub(store.channel("commitlog"))
    for name, count in ((ORDERS, 2), (PARTS, 4), (LATER, 1)):
        await topics.CreateTopic(
            topic_pb.CreateTopicRequest(name=name, read_queue_count=count, write_queue_count=count)
        )
    for first in range(0, EXPIRED_COUNT, BATCH_COUNT):
        await append(store, expected, range(first, first + BATCH_COUNT))
    questions = Questions(store)
    await questions.wait_settled(expected)
    deleted_count = 0
    while not deleted_count:  # the Indexer may have to sync it first
        deleted_count = (await store.janitor().RunOnce(janitor_pb.RunOnceRequest())).run.deleted_segment_count
        await asyncio.sleep(PAUSE_S)
    for first in range(EXPIRED_COUNT, MESSAGE_COUNT, BATCH_COUNT):
        await append(store, expected, range(first, first + BATCH_COUNT))
        if first == MIDDLE_COUNT:
            await asyncio.sleep(PAUSE_S)
            expected.middle_time_ms = int(time.time() * 1000)
            await asyncio.sleep(PAUSE_S)
    for topic, queue_id in QUEUES[:3]:
        await commit(store, expected, topic, queue_id, 7 + queue_id)
    await eventually(lambda: len(list((store.data_dir / store_layout.INDEX_FILTERS).glob("*"))) >= FILTER_COUNT_MIN)
    await _learn(questions, expected)


async def _learn(questions: Questions, expected: Expected) -> None:
    """Forget expired messages, and learn the answers that only the store can know.

    Asserts that all its answers are right.
    """
    look = await questions.look("while the template is made", expected)
    gone = expected.keep(frozenset(look.answers[LOG].lines))
    assert all(int(line.removeprefix(COPY).split(maxsplit=1)[0].rstrip(":")) < EXPIRED_COUNT for line in gone), gone
    late = time_question(LATER, expected.middle_time_ms)
    for question in (TOPICS, RUNS, LEVELS, late):
        expected.lines[question] = list(look.answers[question].lines)
    for question, answer in look.answers.items():
        assert answer.refusal is None, (question, answer)
        due = expected.lines.get(question, [])
        assert sorted(answer.lines) == sorted(due), (question, set(answer.lines) ^ set(due))


def _copy(store: LiveStore, data_dir: Path, expected: Expected) -> Template:
    shutil.copytree(store.data_dir, data_dir)
    return Template(data_dir, expected.copy())


def _check(files: list[str]) -> None:
    """Check that there are enough files of each kind, so that a first, a middle and a last file are harmed."""
    counts = {
        "commitlog/": SEGMENT_COUNT_MIN,
        f"consumequeue/{ORDERS}/0/": QUEUE_FILE_COUNT_MIN,
        "index/": INDEX_FILE_COUNT_MIN,
        f"{store_layout.INDEX_FILTERS}/": FILTER_COUNT_MIN,
    }
    for prefix, count in counts.items():
        found = [file for file in files if file.startswith(prefix)]
        assert len(found) >= count, (prefix, found)
