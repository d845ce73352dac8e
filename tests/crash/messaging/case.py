# SPDX-License-Identifier: Apache-2.0
"""A case: a store with Delivery and a gateway under load, and the trouble of its processes meanwhile.

In the end producers stop, all runs, and all is drained; then the history is compared with the promises.
"""

import asyncio
import contextlib
import functools
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import consumer_offset_service_pb2 as offset_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput_client import ReputError, SharePolicy
from reput_client.aio import AsyncClient, connect

from libs.formats.limits import KIB
from libs.formats.state.system_topics import LEVELS_GROUP
from tests.crash.delayed import level_ends
from tests.crash.live_store import BUG_MARKS, LiveStore, Sizes
from tests.crash.messaging import load, official
from tests.crash.messaging.history import History
from tests.crash.messaging.killing import ALONE, ANYBODY, SERVICES, Killing
from tests.crash.messaging.load import Load
from tests.crash.messaging.official import Official
from tests.crash.messaging.promises import check
from tests.crash.nursery import Child, Nursery
from tests.crash.part import CaseReport
from tests.support.surroundings import free_port

GATEWAY_PERIOD = 4
"""A seed of so many kills gateways alone."""
SIZES = Sizes(
    segment_size_bytes=4096 * KIB, queue_file_size_bytes=20_000, index_slot_count=500, index_entry_capacity=2_000
)
ATTEMPTS_MAX = 1_000
"""So that nothing becomes a dead letter."""
DRAIN_TIMEOUT_S, DRAIN_LOOK_S = 120.0, 0.2


class Trouble(Protocol):
    """The trouble that happens to a store under load."""

    @property
    def children(self) -> Sequence[Child]:
        """All processes that were ever started."""
        ...

    async def start(self) -> None:
        """Start services that do not run."""
        ...

    async def run(self) -> None:
        """Let all of it happen; all works again on return."""
        ...


class MakeTrouble(Protocol):
    """Decides by chance on the trouble."""

    def __call__(self, store: LiveStore, history: History, chance: random.Random, mode: str, /) -> Trouble:
        """Return the trouble for a store whose log flushes in a mode."""
        ...


async def run_case(seed: int, nursery: Nursery) -> CaseReport:
    """Run the case of a seed, whose processes are killed again and again."""
    whom = ALONE if seed % GATEWAY_PERIOD == 0 else ANYBODY
    return await run_troubled(seed, nursery, functools.partial(Killing, whom=whom))


async def run_troubled(
    seed: int, nursery: Nursery, make: MakeTrouble, *, clocks: Mapping[str, Path] | None = None
) -> CaseReport:
    """Run a case. The store of a failed case is kept. `clocks` are the clocks of the LiveStore."""
    report, history = CaseReport(seed), History()
    directory = Path(tempfile.mkdtemp(prefix=f"reput-messaging-{seed}-"))
    ports = {service: free_port() for service in SERVICES}
    store = LiveStore(nursery, directory / "store", SIZES, ports=ports, clocks=clocks)
    try:
        report.wrong += await _run(random.Random(seed), make, store, history, directory)
    except Exception:  # noqa: BLE001 - whatever it is, the other cases go on
        report.wrong.append(traceback.format_exc())
    finally:
        await store.close()
    wrong, counts = check(history)
    report.wrong += [] if report.wrong else wrong
    report.counts += _counts(history) + counts
    if report.wrong:
        report.wrong.append(f"the store is kept in {directory}, its services said\n{store.last_words()}")
    else:
        shutil.rmtree(directory)
    return report


async def _run(
    chance: random.Random, make: MakeTrouble, store: LiveStore, history: History, directory: Path
) -> list[str]:
    """Load, make trouble and drain. Returns the faults besides the history."""
    trouble = make(store, history, chance, chance.choice(("async", "sync")))
    await trouble.start()
    async with connect(commitlog=store.target("commitlog"), delivery=store.target("delivery")) as client:
        await _prepare(client, history)
        native = Load(client, history, chance)
        native.start()
        try:
            async with _official(history, chance, store, directory) as others:
                await trouble.run()
                await asyncio.gather(native.end_producers(), others.end_producer())
                await _drain(client, store, history)
        finally:
            await native.end()
    return native.wrong + _bugs(trouble.children)


@contextlib.asynccontextmanager
async def _official(
    history: History, chance: random.Random, store: LiveStore, directory: Path
) -> AsyncIterator[Official]:
    """The load of RocketMQ's client, if that is there, within a block."""
    others = Official(history, chance)
    async with contextlib.AsyncExitStack() as stack:
        if official.is_there():
            await stack.enter_async_context(others.running(store.children["gateway"].port, directory))
        yield others


async def _prepare(client: AsyncClient, history: History) -> None:
    """Make topics and groups before the first send."""
    for topic in (load.TOPIC, load.KEYED_TOPIC):
        await client.topics.create(topic, read_queue_count=load.QUEUE_COUNT, write_queue_count=load.QUEUE_COUNT)
    history.groups = {**load.GROUPS, **(official.GROUPS if official.is_there() else {})}
    for name, group in history.groups.items():
        policy = SharePolicy(attempts_max=ATTEMPTS_MAX, is_ordered=group.is_ordered)
        await client.share_groups.set(name, policy)


async def _drain(client: AsyncClient, store: LiveStore, history: History) -> None:
    """Wait until all stored messages are settled by all groups. Raises TimeoutError with the rest."""
    left: object = "nobody answers"
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            while left:
                await asyncio.sleep(DRAIN_LOOK_S)
                with contextlib.suppress(ReputError):
                    left = await _left(client, store, history)
    except TimeoutError:
        raise TimeoutError(f"not settled within {DRAIN_TIMEOUT_S} s: {left}") from None


async def _left(client: AsyncClient, store: LiveStore, history: History) -> object:
    """The messages that are not delivered or not settled yet, or a text about the reason, empty if there are none."""
    if waiting := [one async for one in client.delayed.list()]:
        return waiting
    if behind := await _behind(store) or await _levels_left(store) or await _behind(store):
        return behind
    groups = [await client.share_groups.get(name) for name in history.groups]
    return [(group.name, queue) for group in groups for queue in group.queues if queue.lag]


async def _behind(store: LiveStore) -> str:
    """How far the Indexer is behind the log, empty if it is not."""
    log = await store.commitlog().log.GetStatus(log_pb.GetStatusRequest())
    index = await store.indexer().index.GetStatus(index_pb.GetStatusRequest())
    if index.indexed_physical_offset >= log.confirmed_physical_offset:
        return ""
    return f"the Indexer is at {index.indexed_physical_offset} of {log.confirmed_physical_offset}"


async def _levels_left(store: LiveStore) -> str:
    """The delay levels whose committed positions are before their ends, empty if there are none."""
    groups = (await store.indexer().offsets.ListConsumerGroups(offset_pb.ListConsumerGroupsRequest())).groups
    offsets = [one for group in groups if group.group == LEVELS_GROUP for one in group.offsets]
    positions = {one.queue_id + 1: one.queue_offset for one in offsets}
    ends = await level_ends(store)
    return "" if positions == ends else f"delay levels are at {positions} of {ends}"


def _counts(history: History) -> Counter[str]:
    """The counts of all that was done, by kind."""
    sent, deliveries = history.sent.values(), history.deliveries
    counts = Counter(f"SIGKILLs of {one.service}" for one in history.deaths)
    counts["clocks that were set"] = len(history.clock_steps)
    counts["moments with a SIGKILL"] = len({one.killed_ms for one in history.deaths})
    counts.update(f"{one.kind} messages acknowledged" for one in sent if one.answered_ms)
    counts["delayed messages acknowledged, with a level"] = sum(
        bool(one.answered_ms and one.delay_level) for one in sent
    )
    counts.update(f"transactions: {one.end or 'left open'}" for one in sent if one.kind == "transaction")
    counts.update("messages acknowledged to RocketMQ's client" for one in sent if one.answered_ms and not one.is_native)
    counts["messages without an answer"] = sum(one.answered_ms is None for one in sent)
    counts["deliveries"] = len(deliveries)
    counts["deliveries to RocketMQ's client"] = sum(not history.groups[one.group].is_native for one in deliveries)
    counts["acks answered"] = sum(one.verb == "ack" and one.settled_ms is not None for one in deliveries)
    return counts


def _bugs(children: Sequence[Child]) -> list[str]:
    """Lines of the services' logs that only a bug writes."""
    return [
        f"{child.service} says: {line[:1000]}"
        for child in children
        for line in child.lines
        if any(mark in line for mark in BUG_MARKS)
    ]
