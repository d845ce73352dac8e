# SPDX-License-Identifier: Apache-2.0
"""A run of the cluster: a seed becomes a setup and a list of steps, the steps happen, the end is checked.

A run ends by healing everything, without any more faults: then a member must lead, all must be in sync, have the same
bytes, and have all that was promised. The checks are repeated after all were stopped and started.
"""

import asyncio
import dataclasses
import random
import traceback
from pathlib import Path

from libs.machine import failpoints
from services.commitlog.config import CommitLogConfig
from tests.crash.cluster import delivering
from tests.crash.cluster.actions import ACTIONS, draw_weights
from tests.crash.cluster.audit import audit
from tests.crash.cluster.clients import read, write
from tests.crash.cluster.node import Node
from tests.crash.cluster.promises import contents
from tests.crash.cluster.services import administer, produce
from tests.crash.cluster.world import NAMES, ClusterWorld, Setup
from tests.crash.seeds import Outcome, Plan, draw_steps
from tests.crash.sim.loop import Stuck
from tests.crash.sim.model import Broken, expect
from tests.crash.sim.process import Killed

STEP_COUNT_MIN, STEP_COUNT_MAX = 10, 60
NEVER_MS = 3_600_000
HEAL_S_MAX = 240.0
"""In simulated time, after everything works."""
CLIENTS_S_MAX = 60.0
SERVICES_OF, SERVICES = 9, (0, 7)
"""So many of so many seeds have services; of the seeds of plants only the seeds that need them."""
LEVELS = 0
"""Of the seeds with services these have messages with a delay level."""
QUEUE_COUNT = 2
"""Queues of topics that appends make, in runs with services."""


def make_plan(seed: int) -> Plan:
    """Draw a plan."""
    chance = random.Random(seed)
    setup = make_setup(chance)
    if seed % SERVICES_OF in SERVICES:
        log = dataclasses.replace(setup.log, role="sync_master", default_queue_count=QUEUE_COUNT)
        has_levels = seed % SERVICES_OF == LEVELS
        setup = dataclasses.replace(setup, has_services=True, has_levels=has_levels, log=log)
    steps = draw_steps(chance, draw_weights(chance), chance.randint(STEP_COUNT_MIN, STEP_COUNT_MAX))
    return Plan(setup, steps, chance.getrandbits(32))


def make_setup(chance: random.Random) -> Setup:
    """Draw a configuration."""
    mode = chance.choice(("async", "sync"))
    preallocates = chance.random() < 0.5
    log = CommitLogConfig(
        data_dir=Path("/store"),
        role=chance.choice(("async_master", "sync_master")),
        coordinator="etcd",
        min_in_sync_replicas=chance.choice((1, 2, 2, 2, 2, 3)),
        replica_lag_ms_max=chance.choice((2_000, 10_000)),
        lease_duration_ms=chance.choice((2_000, 5_000)),
        lease_renew_ms=500,
        flush_mode=mode,
        segment_size_bytes=chance.choice((8_192, 65_536)),
        preallocate=preallocates,
        warm_segments=preallocates and chance.random() < 0.3,
        transient_store_pool=mode == "async" and chance.random() < 0.3,
        transient_store_pool_segment_count=2,
        commit_interval_ms=chance.choice((70, 200)),
        commit_pages_min=chance.choice((0, 4)),
        commit_thorough_interval_ms=200,
        flush_interval_ms=chance.choice((70, 500)),
        flush_pages_min=chance.choice((0, 4)),
        flush_thorough_interval_ms=chance.choice((200, 10_000, NEVER_MS)),
        checkpoint_interval_ms=chance.choice((200, 1_000, NEVER_MS)),
        snapshot_interval_ms=chance.choice((200, 1_000, NEVER_MS)),
        disk_interval_ms=1_000,
        disk_reserve_bytes=0,
        disk_full_percent=100,
        disk_ballast_bytes=chance.choice((0, 16_384)),
        crc_property=chance.random() < 0.8,
        reconnect_ms_max=chance.choice((100, 2_000)),
        handover_timeout_ms=2_000,
        replica_window_bytes=chance.choice((2_000, 1 << 20)),
        dispatch_size_bytes_min=0 if preallocates else 1 << 18,  # with 0, tails share each scan of a follower
    )
    rates = tuple(chance.choice((0.9, 1.0, 1.0, 1.1)) for _ in NAMES)
    chunk_size_bytes = chance.choice((200, 1_500, 1 << 20))
    return Setup(log=log, rates=rates, has_workers=chance.random() < 0.05, chunk_size_bytes=chunk_size_bytes)


def run_plan(plan: Plan) -> Outcome:
    """Run a plan. Any unexpected error of the harness or the engine is a violation, too."""
    outcome = Outcome()
    world = ClusterWorld(plan.setup, random.Random(plan.seed))
    outcome.counts = world.counts
    try:
        world.run(_live(world, plan, outcome))
    except Broken as error:
        outcome.violation = str(error)
    except Stuck:
        outcome.violation = "everything waits for something that will never happen"
    except Exception:  # noqa: BLE001 - shown with the steps that led there
        outcome.violation = f"unexpected error:\n{traceback.format_exc()}"
    finally:
        world.close()
    world.count("steps", len(outcome.lines))
    return outcome


async def _live(world: ClusterWorld, plan: Plan, outcome: Outcome) -> None:
    world.spawn(world.end_leases())
    for node in world.nodes:
        await node.start()
    for name in ("one", "two"):
        world.spawn(write(world, name, random.Random(f"{plan.seed} {name}")))
    for node in world.nodes:
        world.spawn(read(world, node, random.Random(f"{plan.seed} reads {node.name}")))
    if plan.setup.has_services:
        of_levels = delivering.CLIENTS_OF_LEVELS if plan.setup.has_levels else ()
        for serve in (produce, administer, *delivering.CLIENTS, *of_levels):
            world.spawn(serve(world, random.Random(f"{plan.seed} {serve.__name__}")))
    for step in plan.steps:
        chance = random.Random(step.seed)
        world.loop.chance.seed(step.seed + 1)
        outcome.lines.append(f"{step.kind} ...")
        outcome.lines[-1] = f"{world.loop.time():8.3f} s  {await take_step(world, step.kind, chance)}"
    outcome.lines.append("the end: no more faults")
    world.count("replicated amid faults", len(world.promises.replicated))
    await end(world)


async def take_step(world: ClusterWorld, kind: str, chance: random.Random) -> str:
    """Take a step, after the operator did the due restarts. Returns the step, in words."""
    await mind(world, chance)
    try:
        line = await ACTIONS[kind][1](world, chance)
    except Killed:  # in the middle of a look of the harness itself
        line = f"{kind}: died while somebody looked"
    world.observe()
    return line


async def mind(world: ClusterWorld, chance: random.Random) -> None:
    """Act as the operator of the processes: end processes that ask for it, start processes that are down."""
    for node in world.nodes:
        node.notice_death()
        if node.process is not None and node.process.failures and chance.random() < 0.6:
            await (node.stop() if chance.random() < 0.7 else _killed(node))
        if node.process is None and world.loop.time() >= node.down_until_s and chance.random() < 0.5:
            await node.start()


async def _killed(node: Node) -> None:
    node.kill()


async def end(world: ClusterWorld) -> None:
    """All faults end. Then the cluster must become whole, and keep its promises."""
    failpoints.disarm_all()
    for is_first in (True, False):
        await heal(world)
        if world.setup.has_services:
            await audit(world, is_first=is_first)
        await _check(world)
        world.is_over = True
        for node in world.nodes:
            await node.stop()
    world.count("elections", world.rules.election_count)
    world.count("changes of the set", world.rules.set_change_count)
    world.count("segments", len(segments(world.nodes[0])))


async def heal(world: ClusterWorld) -> None:
    """Let everything work again, and wait until all are in sync."""
    world.mend()
    for node in world.nodes:
        if node.process is not None:
            node.process.faults.clear()
            node.process.die_at_call = None
    end_s = world.loop.time() + HEAL_S_MAX
    while not is_whole(world):
        for node in world.nodes:
            node.notice_death()
            if node.process is not None and node.process.failures:
                expect(node.is_excused, f"{node.name} gave up although nothing fails: {node.process.failures}")
                node.kill()
            if node.process is None:
                await node.start()
        world.observe()
        expect(world.loop.time() < end_s, f"it does not become whole:\n{world.told()}")
        _ = world.coordinator.there
        await asyncio.sleep(0.2)
    world.is_over = True
    if world.clients:
        await asyncio.wait(world.clients, timeout=CLIENTS_S_MAX)


def is_whole(world: ClusterWorld) -> bool:
    """Whether a member leads, all are in sync, and no process asks to be started anew."""
    if any(node.process is None or node.process.failures for node in world.nodes):
        return False
    leader, record = world.leader, world.coordinator.there.record
    if leader is None or leader.log is None or leader.log.in_sync is None or record is None:
        return False
    return len(record.in_sync) == len(NAMES) and leader.log.in_sync.set.live_count == len(NAMES)


async def _check(world: ClusterWorld) -> None:
    """Check that all members have the same, and that promises are kept."""
    leader = await _settled(world)
    log = leader.log
    assert log is not None
    world.observe()
    world.promises.check(log)
    found = contents(log, 0)
    for node in world.nodes:
        assert node.log is not None
        world.promises.look(node.run, node.log)
        world.promises.check_topics(node.log)
        expect(contents(node.log, 0) == found, f"{node.name} shows other records than {leader.name}")
        expect(node.log.epochs.epochs == log.epochs.epochs, f"the epochs of {node.name} are {node.log.epochs.epochs}")
    _check_bytes(world)


async def _settled(world: ClusterWorld) -> Node:
    """Wait until all show all that there is."""
    end_s = world.loop.time() + HEAL_S_MAX
    while True:
        leader = world.leader
        if leader is not None and leader.log is not None and is_whole(world):
            end = leader.log.marks.wrote.value
            logs = [node.log for node in world.nodes if node.log is not None]
            for log in logs:
                log.marks.flushed.hurry(end)
            if len(logs) == len(NAMES) and all(
                log.marks.visible.value == log.marks.wrote.value == end
                and log.epochs.epochs[-1:] == leader.log.epochs.epochs[-1:]
                for log in logs
            ):
                return leader
        expect(world.loop.time() < end_s, f"not all show everything:\n{world.told()}")
        await asyncio.sleep(0.2)
        await heal(world)


def segments(node: Node) -> dict[str, bytes]:
    """Return the segments of a node that have anything."""
    directory = Path("/store/commitlog")
    files = {name: bytes(node.disk.file(directory / name).data) for name in node.disk.list(directory)}
    return {name: data for name, data in files.items() if any(data)}


def _check_bytes(world: ClusterWorld) -> None:
    one, *others = (segments(node) for node in world.nodes)
    for node, other in zip(world.nodes[1:], others, strict=True):
        for name in one.keys() & other.keys():
            expect(one[name] == other[name], f"segment {name} of {node.name} has other bytes than that of a")
        expect(one.keys() == other.keys(), f"{node.name} has the segments {sorted(other)}, a has {sorted(one)}")
