# SPDX-License-Identifier: Apache-2.0
"""The actions of a step of a cluster's run: clients' calls, faults of machines, network, clocks, coordinator."""

import asyncio
import errno
import itertools
import random
from collections.abc import Awaitable, Callable

from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member
from libs.machine import failpoints
from libs.machine.testing.faulty_fs import Fault
from libs.machine.testing.memory_fs import PowerCut, everything_survives
from libs.requests.errors import ServiceError
from services.commitlog.engine.elect.coordinator import Lost
from tests.crash.cluster.clients import send_once
from tests.crash.cluster.node import Node
from tests.crash.cluster.world import NAMES, ClusterWorld
from tests.crash.sim.process import Killed, current_process

Action = Callable[[ClusterWorld, random.Random], Awaitable[str]]

WAYS = list(itertools.permutations(NAMES, 2))
OPERATIONS = (
    *("sync", "sync", "create_mapped", "reserve", "write", "write_atomic", "write_atomic", "sync_directory", "remove"),
)
CUT_PLACES = tuple(f"cut.after_{what}" for what in ("copy", "checkpoint", "snapshot", "truncate", "epochs"))
WAITS_S = (0.01, 0.1, 0.5, 2.0, 7.0)
DOWN_S = (0.0, 0.0, 1.0, 6.0, 15.0)
"""How long a machine that failed is not started."""
STOPS_S = (0.2, 2.0, 4.5, 7.0, 12.0)


def running(world: ClusterWorld, chance: random.Random) -> Node | None:
    """A node with a process; more often the leader."""
    nodes = [node for node in world.nodes if node.process is not None]
    leading = [node for node in nodes if node.leads]
    if leading and chance.random() < 0.4:
        return chance.choice(leading)
    return chance.choice(nodes) if nodes else None


async def append(world: ClusterWorld, chance: random.Random) -> str:
    """Append some batches at once, without waiting for their answers."""
    durabilities = [chance.choice((0, 1, 2, 3, 3, 3)) for _ in range(chance.choice((1, 1, 2, 5)))]
    for durability in durabilities:
        world.spawn(send_once(world, random.Random(chance.getrandbits(32)), durability))
    await asyncio.sleep(chance.choice((0, 0, 0.01, 0.2)))
    return f"append {durabilities}"


async def wait(world: ClusterWorld, chance: random.Random) -> str:
    """Time passes."""
    del world
    seconds = chance.choice(WAITS_S)
    await asyncio.sleep(seconds)
    return f"wait {seconds} s"


async def stop(world: ClusterWorld, chance: random.Random) -> str:
    """A process is asked to end in order."""
    node = running(world, chance)
    if node is None:
        return "stop: nobody"
    await node.stop()
    return f"stop {node.name}"


async def kill(world: ClusterWorld, chance: random.Random) -> str:
    """A process is killed."""
    node = running(world, chance)
    if node is None:
        return "kill: nobody"
    node.kill()
    node.disk.crash(everything_survives)
    node.stay_down(chance.choice(DOWN_S))
    return f"kill {node.name}"


async def die_ahead(world: ClusterWorld, chance: random.Random) -> str:
    """A process will die at a coming call."""
    node, ahead = running(world, chance), chance.choice((1, 2, 3, 5, 10, 30))
    if node is None or node.process is None:
        return "die: nobody"
    node.process.die_ahead(ahead)
    return f"{node.name} dies at its call {ahead} from here"


async def die_in_cut(world: ClusterWorld, chance: random.Random) -> str:
    """The next process that cuts its log dies in the middle of that, at times with its machine's power."""
    place, with_power = chance.choice(CUT_PLACES), chance.random() < 0.5

    def die() -> None:
        process = current_process()
        node = next((node for node in world.nodes if node.process is process), None)
        if node is None or process is None:
            return
        failpoints.disarm(place)
        world.count("deaths in a cut")
        process.die()
        if with_power:
            node.cut_power(PowerCut(chance, page_ratio=0.5, name_ratio=0.5, torn_ratio=0.5))
        raise Killed

    failpoints.arm(place, die)
    return f"who cuts next dies at {place}{' and loses its power' if with_power else ''}"


async def fail_call(world: ClusterWorld, chance: random.Random) -> str:
    """A call on a disk will fail."""
    node, operation, ahead = running(world, chance), chance.choice(OPERATIONS), chance.choice((1, 1, 2, 4))
    if node is None or node.process is None:
        return "fail: nobody"
    node.process.fail_call(operation, ahead, Fault(chance.choice((errno.EIO, errno.ENOSPC)), chance.random()))
    return f"{operation} {ahead} of {node.name} from here fails"


async def cut_power(world: ClusterWorld, chance: random.Random) -> str:
    """Some machines lose their power at once."""
    nodes = chance.sample(world.nodes, chance.choice((1, 1, 1, 2, 3)))
    for node in nodes:
        pages, names, torn = (chance.choice((0.0, 0.5, 1.0)) for _ in range(3))
        node.cut_power(PowerCut(chance, page_ratio=pages, name_ratio=names, torn_ratio=torn))
        node.stay_down(chance.choice(DOWN_S))
        world.count("power cuts")
    return f"power cut of {[node.name for node in nodes]}"


async def suspend(world: ClusterWorld, chance: random.Random) -> str:
    """A process is suspended for a while, without noticing."""
    node, seconds = running(world, chance), chance.choice(STOPS_S)
    if node is None or node.process is None or world.loop.is_stopped(node.process):
        return "suspend: nobody"
    process = node.process
    world.count("pauses")
    world.loop.stop_process(process)

    async def resume() -> None:
        await asyncio.sleep(seconds)
        world.loop.resume_process(process)

    world.spawn(resume())
    return f"suspend {node.name} for {seconds} s"


async def cut(world: ClusterWorld, chance: random.Random) -> str:
    """Ways are cut: a single way, a way and its way back, or all to and from a machine."""
    way, kind = chance.choice(WAYS), chance.choice(("one way", "both ways", "all ways"))
    match kind:
        case "one way":
            world.cut_ways.add(way)
        case "both ways":
            world.cut_ways |= {way, way[::-1]}
        case _:
            world.cut_ways |= {each for each in WAYS if way[0] in each}
    return f"cut {kind} {way}"


async def break_connections(world: ClusterWorld, chance: random.Random) -> str:
    """Connections break in the middle of a transfer, and may be made again at once."""
    broken = [pipes for pipes in list(world.connections) if chance.random() < 0.7]
    for pipe in (pipe for pipes in broken for pipe in pipes):
        pipe.fall()
    return f"{len(broken)} connections break"


async def calm(world: ClusterWorld, chance: random.Random) -> str:
    """Everything works for a while."""
    world.mend()
    for node in world.nodes:
        if node.process is None:
            await node.start()
    seconds = chance.choice((0.5, 2.0, 6.0))
    await asyncio.sleep(seconds)
    return f"all works for {seconds} s"


async def leave_behind(world: ClusterWorld, chance: random.Random) -> str:
    """All works, but a machine is cut off for so long that the other members continue without it."""
    node = chance.choice(world.nodes)
    world.mend()
    world.cut_ways |= {way for way in WAYS if node.name in way}
    await asyncio.sleep(world.setup.log.replica_lag_ms_max / 1000 + chance.choice((1.0, 3.0)))
    return f"leave {node.name} behind"


async def mend(world: ClusterWorld, chance: random.Random) -> str:
    """Some ways, or all, are open again."""
    if chance.random() < 0.5:
        world.heal_ways()
        return "mend all ways"
    for way in sorted(world.cut_ways):
        if chance.random() < 0.5:
            world.cut_ways.discard(way)
    world.let_through()
    return f"mend all but {sorted(world.cut_ways)}"


async def slow(world: ClusterWorld, chance: random.Random) -> str:
    """Some ways become slow."""
    world.slow_ways = {way for way in WAYS if chance.random() < 0.4}
    return f"slow {sorted(world.slow_ways)}"


async def coordinator_way(world: ClusterWorld, chance: random.Random) -> str:
    """A machine, or all, can't reach the coordinator, or can again."""
    nodes = world.nodes if chance.random() < 0.3 else [running(world, chance) or world.nodes[0]]
    is_cut = not nodes[0].is_cut_from_coordinator
    for node in nodes:
        world.cut_coordinator(node, is_cut=is_cut)
    return f"coordinator {'cut' if is_cut else 'mended'} for {[node.name for node in nodes]}"


async def coordinator_away(world: ClusterWorld, chance: random.Random) -> str:
    """All works, then the leader, or all, can't reach the coordinator for long, while several events happen in turn.

    So a leader goes on by the promises of the others, until any of them can't promise.
    """
    world.mend()
    for node in world.nodes:
        if node.process is None:
            await node.start()
    await asyncio.sleep(chance.choice((1.0, 3.0)))
    leading = [node for node in world.nodes if node.leads]
    nodes = world.nodes if chance.random() < 0.4 else leading[:1]
    for node in nodes:
        world.cut_coordinator(node, is_cut=True)
    kinds = (append, append, append, wait, suspend, kill, break_connections, cut, slow, mend)
    count = chance.randint(8, 24)
    for _ in range(count):
        await asyncio.sleep(chance.choice((0.2, 0.5, 1.0)))
        await chance.choice(kinds)(world, chance)
        world.observe()
    return f"{[node.name for node in nodes]} had no coordinator for {count} steps"


async def late(world: ClusterWorld, chance: random.Random) -> str:
    """Requests to the coordinator are late, or in time again."""
    world.set_late_ratio(chance.choice((0.0, 0.0, 0.3, 0.8)))
    return f"{world.late_ratio} of requests to the coordinator are late"


async def lose_change(world: ClusterWorld, chance: random.Random) -> str:
    """The answer to the next change of the set is lost. Then a member of it is gone."""

    def cut_off(record: LeadershipRecord) -> None:
        others = [one.replica_id for one in record.in_sync if one != record.leader]
        if others:
            name = chance.choice(others)
            world.cut_ways |= {way for way in WAYS if name in way}
            for pipe in (pipe for pipes in world.connections for pipe in pipes if name in pipe.way):
                pipe.fall()
            world.count("changes without an answer")

    world.coordinator.loses_change = cut_off
    return "the answer to the next change gets lost"


async def expire(world: ClusterWorld, chance: random.Random) -> str:
    """The coordinator ends the lease early."""
    del chance
    world.rules.ended_early(world.coordinator.there)
    world.coordinator.expire()
    return "the lease ends early"


async def step_clock(world: ClusterWorld, chance: random.Random) -> str:
    """A machine's wall clock jumps."""
    node, step_ms = chance.choice(world.nodes), chance.choice((-3_600_000, -2_000, 2_000, 3_600_000))
    world.step_clock(node, step_ms)
    return f"the clock of {node.name} jumps by {step_ms} ms"


async def hand_over(world: ClusterWorld, chance: random.Random) -> str:
    """An operator asks a leader to let another log lead."""
    leading = [node for node in world.nodes if node.leads and node.process is not None]
    other = chance.choice(world.nodes)
    if not leading or leading[0] is other:
        return "handover: nobody"
    node = leading[0]
    member, process = node.member, node.process
    assert member is not None
    assert process is not None
    try:
        async with asyncio.timeout(15):
            await world.call(process, member.demote(other.name, other.target, epoch=0))
    except (Killed, TimeoutError, ServiceError, Lost, OSError) as error:
        return f"handover {node.name} to {other.name}: {error!r}"
    return f"handover {node.name} to {other.name}"


async def replace_disk(world: ClusterWorld, chance: random.Random) -> str:
    """A machine is gone for good, unless another machine that all wait for is gone. A new machine gets its name."""
    node, record = chance.choice(world.nodes), world.coordinator.there.record
    log = node.log
    if record is None or log is None:
        return "replace: nobody"
    member, members = Member(node.name, log.identity.store_id), set(record.in_sync)
    if member in members and (record.min_in_sync == 1 or len(members) == 1 or members & world.lost_members):
        return "replace: too few others"
    world.lost_members.add(member)
    node.replace_disk()
    world.count("replaced disks")
    return f"replace the disk of {node.name}"


async def fill_disks(world: ClusterWorld, chance: random.Random) -> str:
    """A disk, or each, is full, or has room again."""
    nodes = world.nodes if chance.random() < 0.5 else [chance.choice(world.nodes)]
    is_full = not nodes[0].is_disk_full
    for node in nodes:
        node.fill_disk(is_full=is_full)
    return f"the disks of {[node.name for node in nodes]} {'are full' if is_full else 'have room'}"


async def look(world: ClusterWorld, chance: random.Random) -> str:
    """A reader reads all that some members show."""
    nodes = [node for node in world.nodes if chance.random() < 0.7]
    for node in nodes:
        world.look(node)
    return f"look at {[node.name for node in nodes]}"


ALWAYS = ("append", "wait", "mend", "calm", "look")
"""Kinds that every run has. Of other kinds some runs have many, and some none."""
SHARES = (0.0, 0.0, 0.3, 1.0, 1.0, 3.0)

ACTIONS: dict[str, tuple[int, Action]] = {
    "append": (14, append),
    "wait": (10, wait),
    "stop": (2, stop),
    "kill": (4, kill),
    "die_ahead": (3, die_ahead),
    "die_in_cut": (2, die_in_cut),
    "fail_call": (2, fail_call),
    "cut_power": (3, cut_power),
    "suspend": (4, suspend),
    "cut": (5, cut),
    "mend": (5, mend),
    "break_connections": (3, break_connections),
    "calm": (6, calm),
    "leave_behind": (2, leave_behind),
    "slow": (1, slow),
    "coordinator_way": (4, coordinator_way),
    "coordinator_away": (2, coordinator_away),
    "late": (3, late),
    "lose_change": (2, lose_change),
    "expire": (3, expire),
    "step_clock": (1, step_clock),
    "hand_over": (3, hand_over),
    "replace_disk": (2, replace_disk),
    "fill_disks": (1, fill_disks),
    "look": (6, look),
}
"""Weight and code of each kind of step."""


def draw_weights(chance: random.Random) -> dict[str, float]:
    """Draw how often each kind happens in a run: with all faults at once hardly anything would be replicated."""
    return {kind: weight if kind in ALWAYS else weight * chance.choice(SHARES) for kind, (weight, _) in ACTIONS.items()}
