# SPDX-License-Identifier: Apache-2.0
"""All rows, and how a row is run: services of its own, calm first, then the client, then the time after it."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.attack import store
from tests.attack.canary import Canary, quantile
from tests.attack.looks import LOOKS
from tests.attack.row import Measured, Row
from tests.attack.stack import CONSOLE, Stack, running
from tests.support.fixed_service import REPOSITORY

CALM_S = 3.0
SETTLE_S_MAX = 30.0
LOOK_S = 0.1
POLITE_ROUND_COUNT = 4
CLIENT_END_S = 60.0
"""Seconds that a client may take beyond its time before it is killed."""

OFFSETS_MIB = 60.0
"""A million offsets of which each takes 60 bytes: groups that share their queues."""

FEW_FILES = 1_024
"""RLIMIT_NOFILE of many systems."""

CLIENT_FAULTS = ("failed", "killed", "unreached", "over", "opened")
"""The counts of a client that did not do its worst, or got more than its quota, or pages without a login."""

MEMORY, LOOP = ("peak", "kept"), ("pause", "append")
OTHERS = ("append", "share")

ROWS = (
    Row("unread_answers", "indexer", MEMORY, has_messages=True),
    Row("half_requests", "commitlog", MEMORY),
    Row("continuation_flood", "commitlog", MEMORY),
    Row("rapid_reset", "commitlog", ("append",)),
    Row("refused_requests", "indexer", MEMORY),
    Row("empty_parts", "indexer", MEMORY + LOOP),
    Row("readers_that_do_not_read", "commitlog", MEMORY, has_messages=True),
    Row("scans_that_do_not_read", "indexer", MEMORY, has_messages=True),
    Row("long_polls", "indexer", MEMORY, has_messages=True),
    Row("unknown_fields", "commitlog", LOOP),
    Row("unknown_fields_of_append", "commitlog", LOOP),
    Row("colliding_ids", "indexer", LOOP, has_collisions=True),
    Row("colliding_scan", "indexer", LOOP, has_collisions=True),
    Row("long_texts", "indexer", LOOP),
    Row("wide_plans", "indexer", LOOP, has_messages=True),
    Row("junk_consumer_offsets", "indexer", MEMORY + LOOP, stays_mib_max=OFFSETS_MIB),
    Row("wide_topics", "commitlog", MEMORY + LOOP),
    Row("new_queues", "indexer", ("append",)),
    Row("few_files", "commitlog", ("append",), file_count=FEW_FILES),
    Row("idle_append_streams", "commitlog", MEMORY, restarts="indexer"),
    Row("health_watchers", "commitlog", MEMORY),
    Row("metrics_connections", "commitlog", MEMORY),
    Row("broken_frames", "commitlog", MEMORY + LOOP),
    Row("receives_that_do_not_read", "delivery", MEMORY, has_messages=True),
    Row("groups_read_ahead", "delivery", MEMORY + LOOP, has_messages=True),
    Row("junk_groups", "delivery", MEMORY + LOOP),
    Row("idle_members", "delivery", (*MEMORY, "append")),
    Row("clients_do_not_read", "gateway", MEMORY, has_messages=True),
    Row("junk_clients", "gateway", MEMORY + LOOP),
    Row("client_streams", "gateway", MEMORY),
    Row("door_readers", "gateway", MEMORY + OTHERS, has_messages=True, is_behind_door=True),
    Row("door_requests", "gateway", MEMORY + OTHERS, is_behind_door=True),
    Row("door_resets", "gateway", MEMORY + OTHERS, is_behind_door=True),
    Row("door_heads", "gateway", MEMORY + OTHERS, is_behind_door=True),
    Row("bodies_that_nobody_reads", CONSOLE, MEMORY),
    Row("tails_that_nobody_reads", CONSOLE, MEMORY, has_messages=True),
    Row("silent_readers", CONSOLE, MEMORY),
    Row("floods_of_pages", CONSOLE, (*MEMORY, "append"), has_messages=True),
    Row("forged_requests", CONSOLE, MEMORY, has_messages=True),
    Row("quota", "commitlog", (*MEMORY, "append", "polite"), has_rights=True, polite="quota_kept"),
)


async def run(row: Row, directory: Path, *, calm_s: float = CALM_S) -> Measured:
    """Run a row in a directory of its own."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as own,
        running(
            Path(own), file_count=row.file_count, has_rights=row.has_rights, has_console=row.target == CONSOLE
        ) as stack,
    ):
        if row.has_messages:
            store.wait_indexed(stack.targets["indexer"], store.fill_large(stack.targets["commitlog"]))
        if row.has_collisions:
            store.wait_indexed(stack.targets["indexer"], store.fill_collisions(stack.targets["commitlog"]))
        found = await _attacked(row, stack, calm_s)
        found.broken += stack.tracebacks()
        return found


async def _attacked(row: Row, stack: Stack, calm_s: float) -> Measured:
    service = stack.services[row.target]
    targets = {name: one.target for name, one in stack.services.items()}
    canary = Canary(targets, stack.services["gateway" if row.is_behind_door else "commitlog"].target)
    async with canary.flying():
        await asyncio.sleep(1)  # the first calls make the topic and connect
        canary.forget()
        await asyncio.sleep(calm_s)
        calm_p99_ms, start_mib, pauses_ms = canary.append_p99_ms, service.memory_mib(), stack.pauses_ms()
        works_ms, calm_per_s = stack.works_ms(), len(canary.appends_ms) / calm_s
        canary.forget()
        service.reset_peak()
        broken: list[str] = []
        looked: dict[str, int] = {}
        look = asyncio.ensure_future(LOOKS[row.name](stack, looked)) if row.name in LOOKS else None
        began_s = time.monotonic()
        counts, append_ms, polite_ms = await _in_rounds(row, stack, canary)
        share = (len(append_ms) - canary.failed("append")) / (time.monotonic() - began_s) / max(calm_per_s, 1e-9)
        broken += [f"the client: {name} {counts[name]}" for name in CLIENT_FAULTS if counts.get(name)]
        if look is not None:
            broken += await look
            counts |= looked
        append_p99_ms, polite_p99_ms = quantile(append_ms, 0.99), quantile(polite_ms, 0.99)
        kept_mib = await _settled(service.memory_mib, start_mib + row.kept_mib_max)
        broken += canary.broken(besides=row.restarts)
        after_ms = stack.pauses_ms()
        pause_ms = max(_pause_ms(pauses_ms[name], after_ms[name], canary.looks_ms[name]) for name in after_ms)
        work_ms = max(after if after > works_ms[name] else 0.0 for name, after in stack.works_ms().items())
        peak_mib, p99s_ms = service.peak_mib(), (append_p99_ms, calm_p99_ms, share, polite_p99_ms)
        return Measured(start_mib, peak_mib, kept_mib, pause_ms, work_ms, *p99s_ms, counts, broken)


async def _in_rounds(row: Row, stack: Stack, canary: Canary) -> tuple[dict[str, int], list[float], list[float]]:
    """Run the client, in rounds with the polite client where there is one, so that a busy machine slows down both.

    Returns the client's counts, and the times of others' appends beside the client and beside the polite client.
    """
    if not row.polite:
        return await _client(row, stack), canary.appends_ms, []
    counts, beside_ms, polite_ms = Counter[str](), list[float](), list[float]()
    for _ in range(POLITE_ROUND_COUNT):
        for name, times_ms in ((row.polite, polite_ms), (row.name, beside_ms)):
            canary.appends_ms = []
            counts.update(await _client(replace(row, name=name, seconds=row.seconds / POLITE_ROUND_COUNT * 2), stack))
            times_ms += canary.appends_ms
    return dict(counts), beside_ms, polite_ms


def _pause_ms(before_ms: float, after_ms: float, looks_ms: list[float]) -> float:
    """The longest pause of a loop while the client was there.

    The loop reports the longest pause since its start. When that was before the client came, the longest honest look
    bounds it, because a look waits for the loop.
    """
    return after_ms if after_ms > before_ms else min(before_ms, max(looks_ms, default=0.0))


async def _client(row: Row, stack: Stack) -> dict[str, int]:
    """Run the greedy client to its end. Returns its counts."""
    words = [row.name, str(row.seconds), json.dumps(stack.targets), str(row.seed)]
    command = [sys.executable, "-m", "tests.attack.greedy", *words]
    child = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(row.seconds + CLIENT_END_S):
            output, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        return {"killed": 1}
    counts: dict[str, int] = json.loads(output) if child.returncode == 0 else {"failed": 1}
    return counts


async def _settled(memory_mib: Callable[[], float], enough_mib: float) -> float:
    """Memory as soon as it is low enough, or when the time for that is over."""
    for _ in range(int(SETTLE_S_MAX / LOOK_S)):
        if memory_mib() <= enough_mib:
            break
        await asyncio.sleep(LOOK_S)
    return memory_mib()
