# SPDX-License-Identifier: Apache-2.0
"""A run of the simulation: a seed becomes a setup and a list of steps, the steps happen, the end is checked.

Invariants: a run depends on its plan alone, a plan on its seed alone; leaving out steps keeps the draws of the other
steps. A run ends by starting all services that are down, without any more faults, waiting for the Indexer and comparing
everything.
"""

import asyncio
import random
import traceback
from pathlib import Path
from typing import Literal

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.machine import failpoints
from services.commitlog.config import CommitLogConfig
from services.indexer.config import IndexerConfig
from tests.crash.seeds import Outcome, Plan, draw_steps
from tests.crash.sim import checks
from tests.crash.sim.actions import ACTIONS, FAILPOINTS
from tests.crash.sim.loop import Stuck
from tests.crash.sim.model import Broken, expect
from tests.crash.sim.process import Killed, pass_failpoint
from tests.crash.sim.world import Setup, World

STEP_COUNT_MIN, STEP_COUNT_MAX = 10, 50
NEVER_MS = 3_600_000
DELAY_LEVELS = "1s 3s"
LOG_DIRECTORY = Path("/store")


def make_plan(seed: int) -> Plan:
    """Draw a plan."""
    chance = random.Random(seed)
    setup = make_setup(chance)
    weights = {kind: weight for kind, (weight, _) in ACTIONS.items()}
    steps = draw_steps(chance, weights, chance.randint(STEP_COUNT_MIN, STEP_COUNT_MAX))
    return Plan(setup, steps, chance.getrandbits(32))


def make_setup(chance: random.Random) -> Setup:
    """Draw a configuration."""
    shares_disk = chance.random() < 0.5
    mode: Literal["async", "sync"] = chance.choice(("async", "sync"))
    has_pool = mode == "async" and chance.random() < 0.4
    preallocates = chance.random() < 0.5
    log = CommitLogConfig(
        data_dir=LOG_DIRECTORY,
        flush_mode=mode,
        segment_size_bytes=chance.choice((8_192, 16_384, 65_536)),
        preallocate=preallocates,
        warm_segments=preallocates and chance.random() < 0.3,
        transient_store_pool=has_pool,
        transient_store_pool_segment_count=2,
        commit_interval_ms=chance.choice((20, 200)),
        commit_pages_min=chance.choice((0, 4)),
        commit_thorough_interval_ms=chance.choice((200, 1_000)),
        flush_interval_ms=chance.choice((20, 200, 1_000)),
        flush_pages_min=chance.choice((0, 1, 4)),
        flush_thorough_interval_ms=chance.choice((100, 2_000, NEVER_MS)),
        checkpoint_interval_ms=chance.choice((50, 1_000, NEVER_MS)),
        snapshot_interval_ms=chance.choice((100, 1_000, NEVER_MS)),
        disk_interval_ms=chance.choice((200, 1_000)),
        disk_reserve_bytes=chance.choice((0, 1_000_000)),
        disk_full_percent=100,
        disk_ballast_bytes=16_384,
        log_dirs=chance.choice(("", "", f"{LOG_DIRECTORY}/commitlog,{LOG_DIRECTORY}/more")),
        crc_property=chance.random() < 0.8,
        message_delay_level=DELAY_LEVELS,
        writer_batch_count_max=chance.choice((3, 1_000, 1_000)),
        writer_count_max=1_000,
        dispatch_interval_ms=chance.choice((0, 1)),
        dispatch_heartbeat_ms=1_000,
    )
    indexer = IndexerConfig(
        data_dir=LOG_DIRECTORY if shares_disk else Path("/indexes"),
        queue_file_size_bytes=20 * chance.choice((8, 64, 1_000)),
        queue_mapped_file_count_max=chance.choice((2, 1_024)),
        index_slot_count=chance.choice((4, 64)),
        index_entry_capacity=chance.choice((8, 16, 64)),
        flush_interval_ms=chance.choice((50, 500)),
        flush_pages_min=chance.choice((0, 2)),
        flush_thorough_interval_ms=chance.choice((200, 1_000, NEVER_MS)),
        consumer_offset_interval_ms=NEVER_MS,
        disk_ballast_bytes=4_096,
        reconnect_ms_max=chance.choice((100, 100, 3_000)),
        message_delay_level=DELAY_LEVELS,
    )
    return Setup(
        log=log,
        indexer=indexer,
        shares_disk=shares_disk,
        record_count_max=chance.choice((1, 3, 64)),
        link_delay_ms_max=chance.choice((0, 5, 200)),
        has_workers=chance.random() < 0.3,
    )


def run_plan(plan: Plan) -> Outcome:
    """Run a plan. Any unexpected error of the harness or the engines is a violation, too."""
    outcome = Outcome()
    chance = random.Random(plan.seed)
    world = World(plan.setup, chance)
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


async def _live(world: World, plan: Plan, outcome: Outcome) -> None:
    await begin(world)
    for step in plan.steps:
        chance = random.Random(step.seed)
        world.loop.chance.seed(step.seed + 1)
        outcome.lines.append(f"{step.kind} ...")
        outcome.lines[-1] = await take_step(world, step.kind, chance)
    outcome.lines.append("the end: no more faults")
    await end(world)


async def begin(world: World) -> None:
    """Start both services in an empty world."""
    for name in FAILPOINTS:
        failpoints.arm(name, pass_failpoint)
    await world.start_log()
    await world.start_index()


async def take_step(world: World, kind: str, chance: random.Random) -> str:
    """Take a step, after the operator did the due restarts. Returns the step, in words."""
    try:
        await mind(world, chance)
        line = await ACTIONS[kind][1](world, chance)
    except Killed:  # in the middle of a look of the harness itself
        line = f"{kind}: died while somebody looked"
    world.notice_deaths()
    world.observe()
    return line


async def mind(world: World, chance: random.Random) -> None:
    """Act as the operator of the services: end services that ask for it, start services that are down."""
    if world.log is not None and world.log.process.failures and chance.random() < 0.6:
        await (world.stop_log() if chance.random() < 0.7 else _killed(world.kill_log))
    if world.index is not None and world.index.process.failures and chance.random() < 0.6:
        await (world.stop_index() if chance.random() < 0.7 else _killed(world.kill_index))
    if world.log is None and chance.random() < 0.6:
        await world.start_log()
    if world.index is None and chance.random() < 0.6:
        await world.start_index()


async def _killed(kill: object) -> None:
    assert callable(kill)
    kill()


async def end(world: World) -> None:
    """All faults end; after a restart everything must be there, and the indexes right."""
    failpoints.disarm_all()
    world.set_disk_full(False)
    for server in (world.log, world.index):
        if server is not None:
            server.process.faults.clear()
            server.process.die_at_call = None
    await asyncio.sleep(1)  # a service that met a fault before hears of it
    await _revive(world)
    await _caught_up(world)
    world.look()
    world.count("scheduled messages", sum(one.topic == SCHEDULE_TOPIC for one in world.model.kept()))
    await checks.check_answers(world, world.loop.chance)
    await checks.check_rebuilt(world)
    await world.stop_index()
    await world.stop_log()
    await world.start_log()
    expect(world.log is not None, "the log does not start after a clean stop")
    await asyncio.sleep(0)


async def _revive(world: World) -> None:
    """Start all services that are down or ask to be ended."""
    world.notice_deaths()
    if world.log is not None and world.log.process.failures:
        world.kill_log()
    if world.index is not None and world.index.process.failures:
        world.kill_index()
    if world.log is None:
        await world.start_log()
    if world.index is None:
        await world.start_index()


async def _caught_up(world: World) -> None:
    """Wait for the Indexer. A fault met before the end may come out as late as the next sync of its file."""
    while not await world.caught_up():
        asking = [one.process for one in (world.log, world.index) if one is not None and one.process.failures]
        is_late = bool(asking) and all(process.failed_calls for process in asking)
        expect(is_late, f"a service gave up although nothing fails: {[process.failures for process in asking]}")
        await _revive(world)
