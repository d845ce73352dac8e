# SPDX-License-Identifier: Apache-2.0
"""All that RocketMQ keeps besides ordinary queues: RocketMQ writes it, Reput opens it, and RocketMQ opens it again.

Queues of batches, compacted topics and light queues are set apart. Extensions of queues, the timer wheel, pop, half
messages and several directories of the log go with the store. docs/rocketmq.md section 5 has the list.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.indexer.v1 import query_service_pb2 as query_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb
from reput.indexer.v1 import rebuild_service_pb2 as rebuild_pb

from cli.verify.findings import Finding, Report
from cli.verify.store import verify_store
from libs.formats.indexes.batch_consume_queue import UNIT_SIZE_BYTES as BATCH_UNIT_SIZE_BYTES
from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.state.set_apart import BATCH_QUEUE, COMPACTED, LIGHT_QUEUE
from tests.interop.rocketmq.drafts import DELAY_LEVEL, Drafts
from tests.interop.rocketmq.history import check_equal
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import QueueTags, RocketMqStore
from tests.interop.rocketmq.stored import Draft, Queue, Sizes, Stored, to_reput
from tests.interop.rocketmq.writing import HALF_TOPIC, OP_TOPIC
from tests.support.service_process import Refusal

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SIZES = Sizes()
BATCHES, KEYED, LIGHT = "batches", "keyed", ("%LMQ%a", "%LMQ%topic$b.c")
APART = {BATCHES: BATCH_QUEUE, KEYED: COMPACTED, LIGHT[0]: LIGHT_QUEUE}
TIMER_TOPIC, TIMER_DELAY_MS = "rmq_sys_wheel_timer", 86_400_000
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
POP_RETRY_TOPICS = ("%RETRY%group_plain", "%RETRY%group+plain")
FOREIGN = (
    *("batchconsumequeue", "compaction", "consumequeue_ext", "timerwheel", "timerlog", "config/timercheck"),
    *(f"consumequeue/{topic}" for topic in (KEYED, *LIGHT)),
)
"""Files and directories in which Reput changes nothing."""


@dataclass(frozen=True)
class Release:
    """A release, and the way in which it ends before Reput opens the store."""

    major: str
    is_killed: bool = False

    @property
    def features(self) -> list[str]:
        """The features of the release."""
        return ["light", "ext", "timer"] if self.major == "5" else ["light", "ext"]


@dataclass(frozen=True)
class Content:
    """The content of a store as RocketMQ shows it."""

    queues: list[Queue]
    tags: list[QueueTags]
    timer_count: int
    by_key: dict[tuple[str, str], list[int]]

    def of(self, *, apart: bool) -> dict[tuple[str, int], list[Stored]]:
        """Messages by queue, either of topics that are set apart or of all others."""
        return {
            (queue.topic, queue.queue_id): queue.messages
            for queue in self.queues
            if (queue.topic in (BATCHES, KEYED, *LIGHT)) == apart
        }


def log_dirs_of(store: Path) -> str:
    """Return two directories for the log, as both programs name them."""
    return ",".join(str(store / f"disk{number}") for number in (1, 2))


@contextlib.asynccontextmanager
async def rocketmq(release: Release, store: Path, **options: Any) -> AsyncIterator[RocketMqStore]:
    """RocketMQ with all its features, on a store whose log has two directories."""
    async with await RocketMqStore.open(
        release.major, store, SIZES, log_dirs=log_dirs_of(store), features=release.features, **options
    ) as opened:
        yield opened


def reput(store: Path) -> contextlib.AbstractAsyncContextManager[ReputStore]:
    """Reput on the same directories."""
    return ReputStore.served(store, SIZES, log_dirs=log_dirs_of(store))


def with_properties(drafts: list[Draft], topic: str | None = None, **properties: str) -> list[Draft]:
    """The messages with further properties, in queue 0 of `topic` if it is given."""
    changes: dict[str, Any] = {} if topic is None else {"topic": topic, "queue_id": 0}
    return [msgspec.structs.replace(one, properties=one.properties | properties, **changes) for one in drafts]


async def write(store: RocketMqStore, release: Release, drafts: Drafts) -> None:
    """Append some messages of each kind."""
    await store.put(drafts.take(40, topic="plain"))
    await store.put(with_properties(drafts.take(4, topic="later"), DELAY=DELAY_LEVEL))
    await store.put(with_properties(drafts.take(9, topic="parent"), INNER_MULTI_DISPATCH=",".join(LIGHT)))
    await store.put(with_properties(drafts.take(2, topic="paid"), HALF_TOPIC, REAL_TOPIC="paid", REAL_QID="1"))
    await store.put(with_properties(drafts.take(2, topic="paid"), OP_TOPIC, TAGS="d"))
    for topic in (*POP_RETRY_TOPICS, REVIVE_TOPIC):
        await store.put(with_properties(drafts.take(3, topic="plain"), topic, TAGS="ck"))
    if release.major == "4":
        return
    for _ in range(3):
        properties = {"KEYS": "batch", "UNIQ_KEY": drafts.take(1)[0].body.hex() or "unique"}
        await store.put_inner_batch(drafts.take(7, topic=BATCHES), properties)
        await store.put(drafts.take(1, topic=BATCHES))
    await store.put([one for key in "abc" for one in with_properties(drafts.take(5, topic=KEYED), KEYS=key)])
    placed = await store.put(drafts.take(1, topic="plain"))
    due = {"REAL_TOPIC": "plain", "REAL_QID": "1", "TIMER_OUT_MS": str(placed[0][2] + TIMER_DELAY_MS)}
    await store.put(with_properties(drafts.take(5, topic="plain"), TIMER_TOPIC, **due))


async def content(store: RocketMqStore, release: Release) -> Content:
    """Return the whole content of a store."""
    await store.settle()
    keys = [(BATCHES, "batch"), *((KEYED, key) for key in "abc")]
    found = await store.by_keys(keys) if release.major == "5" else []
    return Content(
        queues=await store.read(),
        tags=await store.tags(),
        timer_count=await store.timer_count() if "timer" in release.features else 0,
        by_key={name: sorted(set(offsets)) for name, offsets in zip(keys, found, strict=False)},
    )


def foreign_files(store: Path) -> dict[str, bytes]:
    """The files that Reput must not change."""
    roots = [store / name for name in FOREIGN]
    paths = [path for root in roots for path in (root.rglob("*") if root.is_dir() else [root]) if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes() for path in paths}


def lose_last_units(store: Path) -> None:
    """Remove the last record of each queue from the queue, as a kill may."""
    sizes = [("batchconsumequeue", BATCH_UNIT_SIZE_BYTES)]
    sizes += [(f"consumequeue/{topic}", UNIT_SIZE_BYTES) for topic in LIGHT]
    for name, size in sizes:
        for queue in (store / name).rglob("0*0"):
            if queue.is_file():
                path = max(path for path in queue.parent.iterdir() if any(path.read_bytes()))
                data = path.read_bytes()
                end = -(-len(data.rstrip(b"\0")) // size) * size
                path.write_bytes(data[: end - size] + bytes(len(data) - end + size))
                break


async def check_refused(call: Awaitable[Any], topic: str) -> None:
    """Check that a call is refused because its topic is set apart."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    refusal = Refusal(caught.value)
    assert (refusal.reason, refusal.metadata["why"]) == ("TOPIC_SET_APART", APART[topic])


async def check_refusals(store: ReputStore, release: Release, before: Content) -> None:
    """Check that topics set apart are neither written nor read, and that refused messages leave no record."""
    end = await store.settle()
    draft = Drafts(8).take(1, topic="plain")[0]
    topics = APART if release.major == "5" else [LIGHT[0]]
    for topic in topics:
        message = to_reput(msgspec.structs.replace(draft, topic=topic))
        await check_refused(store.log.append.Append(append_pb.AppendRequest(messages=[message])), topic)
        await check_refused(store.index.queues.Pull(queue_pb.PullRequest(topic=topic, queue_id=0)), topic)
        await check_refused(store.index.queries.QueryByKey(query_pb.QueryByKeyRequest(topic=topic, key="a")), topic)
    light = to_reput(with_properties([draft], INNER_MULTI_DISPATCH=LIGHT[0])[0])
    await check_refused(store.log.append.Append(append_pb.AppendRequest(messages=[light])), LIGHT[0])
    for message in await store.walk():  # messages that compaction has kept name other places
        if message.topic in topics:
            request = query_pb.QueryByIdRequest(message_id=message.message_id)
            await check_refused(store.index.queries.QueryById(request), message.topic)
    assert await store.settle() == end
    status = await store.index.index.GetStatus(index_pb.GetStatusRequest())
    stepped = {note.topic: note.record_count for note in status.stepped_over}
    records = {name: len(messages) for (name, _), messages in before.of(apart=True).items()}
    assert stepped == {topic: count for topic, count in records.items() if topic not in LIGHT}


def check_verified(store: Path) -> None:
    """Check that `verify` finds no fault."""
    found: list[Finding] = []
    report = Report(found.append, limit=9)
    verify_store(store, report, index_slot_count=SIZES.index_slot_count)
    assert report.fault_count == 0, found


async def check_ordinary(store: ReputStore, expected: dict[tuple[str, int], list[Stored]]) -> None:
    """Check every message of the queues that are not set apart."""
    await store.settle()
    found = {(queue.topic, queue.queue_id): queue.messages for queue in await store.read()}
    assert sorted(found) == sorted(expected)
    for name, messages in expected.items():
        check_equal(messages, found[name], str(name))


async def check_tag(store: ReputStore, messages: list[Stored]) -> None:
    """Check a queue's messages with a tag, although their units lead to RocketMQ's extension."""
    tag, found = messages[0].properties["TAGS"], []
    request = queue_pb.PullRequest(topic=messages[0].topic, queue_id=messages[0].queue_id, tag_expression=tag)
    while request.queue_offset < len(messages):
        answer = await store.index.queues.Pull(request)
        found += [message.queue_offset for message in answer.messages]
        request.queue_offset = answer.next_queue_offset
    assert found == [message.queue_offset for message in messages if message.properties.get("TAGS") == tag]


async def append(store: ReputStore, drafts: Drafts) -> None:
    """Append messages to queues that RocketMQ has begun, and to a new queue."""
    for topic in ("plain", "parent", "new"):
        await store.append(drafts.take(20, topic=topic))
    await store.settle()


async def rebuild(store: ReputStore) -> None:
    """Have all indexes built anew."""
    steps = [step async for step in store.index.rebuilds.RebuildIndexes(rebuild_pb.RebuildIndexesRequest())]
    assert steps[-1].is_done


@pytest.mark.parametrize(("major", "is_killed"), [("5", False), ("5", True), ("4", True)], indirect=["major"])
async def test_all_kinds(tmp_path: Path, major: str, is_killed: bool) -> None:
    """RocketMQ, Reput and RocketMQ open a store in turns, and all their messages stay readable.

    Reput appends, rebuilds and is killed. RocketMQ then writes more of every kind, and Reput opens the store again.
    """
    release, store, drafts = Release(major, is_killed), tmp_path / "store", Drafts(10)
    store.mkdir()
    async with rocketmq(release, store) as opened:
        if major == "5":
            await opened.make_topic(BATCHES, queue_type="BatchCQ")
            await opened.make_topic(KEYED, cleanup_policy="COMPACTION")
        for _ in range(2):
            await write(opened, release, drafts)
        before = await content(opened, release)
        await (opened.kill() if is_killed else opened.stop())
    if is_killed:
        lose_last_units(store)
    foreign = foreign_files(store)
    assert {name.split("/")[0] for name in foreign} >= {"consumequeue", "consumequeue_ext"}
    async with reput(store) as ours:
        await check_ordinary(ours, before.of(apart=False))
        await check_refusals(ours, release, before)
        await append(ours, drafts)
        await rebuild(ours)
        assert foreign_files(store) == foreign
    check_verified(store)
    async with ReputStore.running(store, SIZES, log_dirs=log_dirs_of(store)) as ours:
        await append(ours, drafts)
        grown = {(queue.topic, queue.queue_id): queue.messages for queue in await ours.read()}
        await ours.kill()
    async with reput(store) as ours:
        await check_ordinary(ours, grown)
    assert foreign_files(store) == foreign
    async with rocketmq(release, store, index_safe=is_killed) as opened:
        after = await content(opened, release)
        for name, messages in before.of(apart=True).items():
            check_equal(messages, after.of(apart=True)[name], str(name))
        assert after.of(apart=False) == grown
        assert after.by_key == before.by_key
        # RocketMQ may enter a message again that it had not noted as being in the wheel; its files are as it left them.
        assert before.timer_count <= after.timer_count <= 2 * before.timer_count
        await write(opened, release, drafts)
        last = await content(opened, release)
        await opened.stop()
    for name, messages in before.of(apart=True).items():
        assert len(last.of(apart=True)[name]) > len(messages)
    plain = ("plain", 1)
    assert any((queue.topic, queue.queue_id) == plain and queue.extended_count for queue in last.tags)
    async with reput(store) as ours:
        await check_ordinary(ours, last.of(apart=False))
        await check_tag(ours, last.of(apart=False)[plain])
    check_verified(store)
