# SPDX-License-Identifier: Apache-2.0
"""A case: shards under load whose topic changes while processes and commands are killed, then the promises."""

import asyncio
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from reput_client import SharePolicy
from reput_client.aio import connect

from tests.crash.live_store import BUG_MARKS
from tests.crash.nursery import Nursery
from tests.crash.part import CaseReport
from tests.crash.shards.history import History
from tests.crash.shards.load import GROUP, TOPIC, Load
from tests.crash.shards.promises import check
from tests.crash.shards.sharded_store import ShardedStore
from tests.crash.shards.trouble import Trouble
from tests.support import reput_up

ATTEMPTS_MAX = 1_000
"""So that nothing becomes a dead letter."""
STILL_S, DRAIN_LOOK_S = 60.0, 0.3
QUEUES_PER_SHARD = 2


async def run_case(seed: int, nursery: Nursery) -> CaseReport:
    """Run the case of a seed. The store of a failed case is kept."""
    report, history, chance = CaseReport(seed), History(), random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix=f"reput-shards-{seed}-"))
    names = "abc"[: chance.choice((2, 2, 3))]
    store = ShardedStore(nursery, directory, names, chance.choice(("async", "sync")), chance)
    try:
        await _run(store, history, chance)
    except Exception:  # noqa: BLE001 - whatever it is, the other cases go on
        report.wrong.append(traceback.format_exc())
    finally:
        await store.close()
    wrong, counts = check(history)
    report.wrong += wrong + _bugs(store)
    report.counts += _counts(history) + counts
    if report.wrong:
        changes = "\n".join(history.changes)
        report.wrong.append(f"the store is kept in {directory}\n{changes}\n{history.kills}\n{store.last_words()}")
    else:
        shutil.rmtree(directory)
    return report


async def _run(store: ShardedStore, history: History, chance: random.Random) -> None:
    """Load, make trouble and drain."""
    await store.start()
    count = str(QUEUES_PER_SHARD * len(store.shards))
    made = await asyncio.to_thread(
        reput_up.run_here, "shards", "create", TOPIC, "--queues", count, "--shards-file", str(store.file), "--json"
    )
    assert made.code == 0, made.errors
    for shard in store.shards.values():
        async with connect(commitlog=shard.target("commitlog"), delivery=shard.target("delivery")) as client:
            await client.share_groups.set(GROUP, SharePolicy(attempts_max=ATTEMPTS_MAX, is_ordered=True))
    load = Load(store.front.target("gateway"), history, chance)
    load.start()
    try:
        await Trouble(store, history, chance).run()
        load.check()
        await load.end_producers()
        if not history.taken:  # groups may wait for such messages for ever
            await _drain(load)
    finally:
        await load.end()


async def _drain(load: Load) -> None:
    """Wait until all acknowledged messages are received. Raises TimeoutError if none comes for STILL_S."""
    left, since_s = load.unreceived(), time.monotonic()
    while left:
        await asyncio.sleep(DRAIN_LOOK_S)
        before, left = left, load.unreceived()
        if len(left) < len(before):
            since_s = time.monotonic()
        elif time.monotonic() - since_s > STILL_S:
            raise TimeoutError(f"{len(left)} messages do not come, and none came for {STILL_S} s: {left[:5]}")


def _counts(history: History) -> Counter[str]:
    counts = Counter(f"{change.partition(' ')[0]} {_ending(change)}" for change in history.changes)
    counts.update(f"SIGKILLs of {name.partition(' ')[0]}" for name, _, _ in history.kills)
    counts["messages acknowledged"] = sum(one.answered_ms is not None for one in history.sent.values())
    counts["deliveries"] = len(history.deliveries)
    counts["acks answered"] = sum(one.settled_ms is not None for one in history.deliveries)
    counts["messages that sealed queues refused"] = history.refused_count
    counts["longest send, ms"] = round(history.pause_ms())
    return counts


def _ending(change: str) -> str:
    ended = change.rpartition(": ")[2]
    return "done" if ended.startswith("0") else "killed" if ended == "killed" else "refused or failed"


def _bugs(store: ShardedStore) -> list[str]:
    """Lines of the services' logs that only a bug writes."""
    return [
        f"{child.service} says: {line[:1000]}"
        for child in store.children
        for line in child.lines
        if any(mark in line for mark in BUG_MARKS)
    ]
