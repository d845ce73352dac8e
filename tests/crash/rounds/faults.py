# SPDX-License-Identifier: Apache-2.0
"""Faults of three logs under load. Each begins, lasts and ends by itself; `FAULTS` has them by name.

A fault that ends, starts or stops processes holds the machine's `busy`; faults of network, clock and etcd may come on
top. Their remains (a cut, a wrong clock, a process that ended) are healed at the end of the round by `heal`.
Invariants: a single disk at most is lost in a round, which min_in_sync_replicas = 2 allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import grpc.aio
from reput.commitlog.v1 import replication_service_pb2 as pb
from reput.commitlog.v1 import replication_service_pb2_grpc as pb_grpc

from tests.crash.nursery import EndedEarly
from tests.crash.rounds.machine import Machine
from tests.crash.rounds.network import HARNESS
from tests.crash.rounds.promises import Promises
from tests.crash.rounds.trio import ETCD_NAME, Trio

LENGTHS_S = (0.2, 1.0, 2.5, 4.0, 6.0)
STOPS_S = (1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 30.0)
STEPS_S = (0.5, -0.5, 5.0, -5.0, 600.0, -600.0, 86_400.0, -86_400.0)
WRITE_COUNT_MAX = 60
CUT_TIMEOUT_S = 1.0
HANDOVER_TIMEOUT_S = 5.0
LOST_DISK = "a disk is lost"


@dataclass(slots=True)
class Scene:
    """The scene of a fault. `once` has the events that may not happen again in the round; all faults share it."""

    trio: Trio
    promises: Promises
    chance: random.Random
    once: set[str]

    async def anybody(self) -> Machine:
        """A machine; more often the leader's."""
        leader = await self.trio.leader() if self.chance.random() < 0.6 else None
        return leader or self.chance.choice(list(self.trio.machines.values()))

    async def last(self) -> None:
        """Let the fault last for a while."""
        await asyncio.sleep(self.chance.choice(LENGTHS_S))


Fault = Callable[[Scene], Awaitable[str]]


async def kill(scene: Scene) -> str:
    """SIGKILL: a machine's processes, a single process of it, or the same of all three machines."""
    chance, machines = scene.chance, [await scene.anybody()]
    if chance.random() < 0.15:
        machines = list(scene.trio.machines.values())
    what = chance.choice(("all", "commitlog", "commitlog", "indexer", "delivery"))
    async with contextlib.AsyncExitStack() as stack:
        for machine in sorted(machines, key=lambda one: one.name):
            await stack.enter_async_context(machine.busy)
        for machine in machines:
            for child in machine.living:
                if what in ("all", child.service):
                    child.send(signal.SIGKILL)
                    await child.wait_ended()
        await scene.last()
        await asyncio.gather(*(machine.start_patiently() for machine in machines))
    return f"kill {what} of {','.join(machine.name for machine in machines)}"


async def stop(scene: Scene) -> str:
    """SIGSTOP for 1 to 30 s, and SIGCONT."""
    machine, seconds = await scene.anybody(), scene.chance.choice(STOPS_S)
    async with machine.busy:
        machine.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            machine.send(signal.SIGCONT)
    return f"stop {machine.name} for {seconds} s"


async def restart(scene: Scene) -> str:
    """An orderly stop and a start."""
    machine = await scene.anybody()
    async with machine.busy:
        scene.promises.wrong += await machine.stop()
        await asyncio.sleep(scene.chance.choice((0.0, 0.0, 1.0)))
        await machine.start_patiently()
    return f"restart {machine.name}"


async def cut(scene: Scene) -> str:
    """Cut a machine off from all others, or from all but the clients, or from some; both ways or a single way."""
    chance, machine = scene.chance, await scene.anybody()
    others = [name for name in (HARNESS, *scene.trio.network.names) if name != machine.name]
    logs = [name for name in others if name in scene.trio.machines]
    all_but_clients = [*logs, ETCD_NAME]
    chosen = chance.choice((others, all_but_clients, all_but_clients, logs, [chance.choice(logs)], [ETCD_NAME]))
    ways = chance.choice(("both ways", "both ways", "outwards", "inwards"))
    for other in chosen:
        if ways != "inwards":
            await asyncio.to_thread(scene.trio.network.cut, machine.name, other)
        if ways != "outwards":
            await asyncio.to_thread(scene.trio.network.cut, other, machine.name)
    await scene.last()
    return f"cut {machine.name} off from {','.join(chosen)} {ways}"


async def lose(scene: Scene) -> str:
    """A lossy link."""
    machine, percent = await scene.anybody(), scene.chance.choice((2, 10, 30))
    await asyncio.to_thread(scene.trio.network.lose, machine.name, percent)
    await scene.last()
    return f"lose {percent} % of what comes to {machine.name}"


async def slow(scene: Scene) -> str:
    """A slow link, which delays too."""
    machine, kbit_per_s = await scene.anybody(), scene.chance.choice((200, 1_000, 5_000))
    await asyncio.to_thread(scene.trio.network.slow, machine.name, kbit_per_s)
    await scene.last()
    return f"slow {machine.name} down to {kbit_per_s} kbit/s"


async def step_clock(scene: Scene) -> str:
    """A wrong wall clock."""
    machine, seconds = await scene.anybody(), scene.chance.choice(STEPS_S)
    machine.step_clock(seconds)
    await scene.last()
    return f"step the clock of {machine.name} by {seconds} s"


async def fill_disk(scene: Scene) -> str:
    """No space, or nearly none, for a while; perhaps with a death meanwhile."""
    machine, chance = scene.trio.with_disk("small"), scene.chance
    assert machine.small is not None
    async with machine.busy:
        machine.may_end = True
        await asyncio.to_thread(machine.small.fill, chance.choice((0, 0, 4096, 100_000)))
        await asyncio.sleep(chance.choice(LENGTHS_S))
        dies = chance.random() < 0.3
        if dies:
            await machine.kill()
            with contextlib.suppress(EndedEarly, TimeoutError):
                await machine.start()
        await asyncio.to_thread(machine.small.free)
        await machine.start_patiently()
        machine.may_end = False
    return f"fill the disk of {machine.name}{', and kill it' if dies else ''}"


async def cut_power(scene: Scene) -> str:
    """The power of a machine whose disk has a cache fails, after some writes; it loses, tears and reorders."""
    machine, chance = scene.trio.with_disk("volatile"), scene.chance
    disk = machine.volatile
    assert disk is not None
    keep, seed = chance.choice((0.0, 0.2, 0.5, 0.8, 1.0)), chance.getrandbits(31)
    async with machine.busy:
        machine.may_end = True
        scene.promises.loses_power(machine.name)
        disk.arm(after_write_count=chance.randrange(WRITE_COUNT_MAX), keep=keep, seed=seed)
        await asyncio.to_thread(disk.wait_failed, CUT_TIMEOUT_S)
        await asyncio.to_thread(disk.fail_now, keep=keep, seed=seed)
        await machine.kill()
        machine.children.clear()  # their messages about a dying disk are no bug
        held, kept = disk.lost_sectors()
        await asyncio.to_thread(disk.power_off)
        await scene.last()
        await asyncio.to_thread(disk.power_on)
        machine.may_end = False
        await machine.start()
    return f"cut the power of {machine.name}, of {held} sectors in the cache {kept} are kept"


async def replace_disk(scene: Scene) -> str:
    """A machine dies, and comes back with an empty disk."""
    if LOST_DISK in scene.once:
        return await kill(scene)
    scene.once.add(LOST_DISK)
    machine = await scene.anybody()
    async with machine.busy:
        scene.promises.loses_disk(machine.name)
        await machine.kill()
        await asyncio.sleep(scene.chance.choice((0.0, 0.5, 3.0)))
        await asyncio.to_thread(machine.replace_disk)
        await machine.start_patiently()
    return f"replace the disk of {machine.name}"


async def hand_over(scene: Scene) -> str:
    """Hand over like `reput handover`."""
    old = await scene.trio.leader()
    others = [machine for machine in scene.trio.machines.values() if machine is not old]
    new = scene.chance.choice(others)
    if old is None:
        return "hand over: nobody leads"
    try:
        left = await _replication(old).Demote(
            pb.DemoteRequest(replica_id=new.name, leader_target=new.target),
            metadata=old.metadata,
            timeout=HANDOVER_TIMEOUT_S,
        )
        await _replication(new).Promote(
            pb.PromoteRequest(role=left.former_role, epoch=left.epoch, end_physical_offset=left.end_physical_offset),
            metadata=new.metadata,
            timeout=HANDOVER_TIMEOUT_S,
        )
    except grpc.aio.AioRpcError as error:
        return f"hand over from {old.name} to {new.name}: {error.details()}"
    return f"hand over from {old.name} to {new.name}"


async def harm_etcd(scene: Scene) -> str:
    """etcd is killed and started again, or suspended."""
    etcd, is_killed = scene.trio.etcd, scene.chance.random() < 0.5
    if scene.trio.etcd_is_busy.locked():
        return "harm etcd: it is"
    async with scene.trio.etcd_is_busy:
        if is_killed:
            await asyncio.to_thread(etcd.kill)
            await scene.last()
            await asyncio.to_thread(etcd.start)
            return "kill etcd"
        etcd.send(signal.SIGSTOP)
        try:
            await scene.last()
        finally:
            etcd.send(signal.SIGCONT)
        return "stop etcd"


async def kill_gateway(scene: Scene) -> str:
    """SIGKILL of the gateway, which is started again after a while."""
    trio = scene.trio
    if not trio.gateway.is_running:
        return "kill the gateway: there is none"
    await trio.gateway.kill()
    await scene.last()
    await trio.start_gateway()
    return "kill the gateway"


FAULTS: Mapping[str, Fault] = {
    "SIGKILL": kill,
    "SIGSTOP": stop,
    "restart": restart,
    "cut": cut,
    "lossy link": lose,
    "slow link": slow,
    "clock step": step_clock,
    "full disk": fill_disk,
    "power cut": cut_power,
    "replaced disk": replace_disk,
    "handover": hand_over,
    "etcd killed or stopped": harm_etcd,
    "gateway killed": kill_gateway,
}
WEIGHTS = {"SIGKILL": 3, "SIGSTOP": 3, "cut": 3, "handover": 2, "power cut": 2, "replaced disk": 2}
"""How often each is drawn; once where nothing is said."""


def draw(chance: random.Random, count: int) -> list[str]:
    """Names of faults for a round."""
    return chance.choices(list(FAULTS), [WEIGHTS.get(name, 1) for name in FAULTS], k=count)


async def heal(trio: Trio) -> None:
    """Mend network and clocks, and start all processes that have ended. No fault is under way any more.

    Raises EndedEarly.
    """
    await asyncio.to_thread(trio.network.heal)
    for machine in trio.machines.values():
        machine.step_clock(0)
    await trio.start()


def _replication(machine: Machine) -> pb_grpc.ReplicationServiceAsyncStub:
    return pb_grpc.ReplicationServiceStub(machine.channel)
