# SPDX-License-Identifier: Apache-2.0
"""Audit: when all works again, a new Delivery works to the end, and is compared with the former answers.

All remaining messages are received, all that waits for its time is delivered, all dead letters are replayed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from reput.delivery.v1 import delivery_service_pb2 as pb
from reput.delivery.v1 import group_service_pb2 as groups_pb

from tests.crash.cluster.deliveries import Answer, Delivery, ask
from tests.crash.cluster.delivering import receive, replay_once
from tests.crash.cluster.kept import LETTERS, REMINDERS, SALES, TASKS
from tests.crash.sim.model import expect

if TYPE_CHECKING:
    from tests.crash.cluster.world import ClusterWorld

REST_S_MAX = 240.0
"""In simulated time."""
AGAIN_S = 0.5
LEVELS_S = 2.0
"""How long a Delivery may deliver what it should not."""
HOURS_MS = 3 * 3_600_000
RECEIVE_COUNT = 100


async def audit(world: "ClusterWorld", *, is_first: bool) -> None:
    """Compare all that was answered. The first time all is brought to its end before."""
    world.deliveries.kill_all()
    if is_first:
        _let_time_pass(world)
        await _finish_tasks(world)
        await _until(world, "delayed messages", lambda: _is_none_late(world))
    await _check_groups(world)
    if world.setup.has_levels:
        await _check_levels(world)
        world.count("alarms", sum(world.levels.delivered_counts.values()) if is_first else 0)
    bodies = world.deliveries.shown.bodies
    world.kept.check_replayed(bodies(TASKS), bodies(LETTERS))
    world.kept.check_delays(bodies(REMINDERS))
    world.kept.check_ends(bodies(SALES))
    world.deliveries.kill_all()


def _let_time_pass(world: "ClusterWorld") -> None:
    """Let the time of all that waits be over: all clocks are the same, and hours ahead."""
    latest_ms = world.latest_ms()
    for node in world.nodes:
        world.step_clock(node, latest_ms + HOURS_MS - node.clock.now_ms())


async def _finish_tasks(world: "ClusterWorld") -> None:
    """Receive all remaining tasks, replay all dead letters, and receive the replayed messages."""
    await _drain(world)
    bodies = world.deliveries.shown.bodies
    world.kept.check_letters(bodies(TASKS), bodies(LETTERS))
    while (await _asked(world, lambda delivery: replay_once(world, delivery))).value:
        await _drain(world)


async def _drain(world: "ClusterWorld") -> None:
    """Receive and settle tasks until there are none, all of them that have to come among them."""
    received: set[tuple[int, int]] = set()
    end_s = world.loop.time() + REST_S_MAX
    while True:
        delivery = _serving(world)
        some = [] if delivery is None else await receive(world, delivery, RECEIVE_COUNT)
        received |= {(one.message.queue_id, one.message.queue_offset) for one in some}
        if delivery is not None and some:
            await _acknowledge(world, delivery, some)
        elif not (left := _left(world) - received):
            return
        else:
            expect(world.loop.time() < end_s, f"tasks at {sorted(left)[:5]} do not come, and are not settled")
            await asyncio.sleep(AGAIN_S)


async def _acknowledge(world: "ClusterWorld", delivery: Delivery, some: Iterable[pb.ReceivedMessage]) -> None:
    entries = [pb.SettleEntry(handle=one.handle, ack=pb.Ack()) for one in some]
    answer = await ask(world, delivery.process, lambda: delivery.deliveries.Settle(pb.SettleRequest(entries=entries)))
    if answer.is_done:
        for one, outcome in zip(some, answer.value.outcomes, strict=True):
            if not outcome.HasField("error"):
                world.kept.settled.add((one.message.queue_id, one.message.queue_offset))


def _left(world: "ClusterWorld") -> set[tuple[int, int]]:
    """Return the places of tasks that have to come: neither settled, perhaps, nor among the dead letters."""
    shown, kept = world.deliveries.shown, world.kept
    dead = set(shown.bodies(LETTERS))
    places = {
        (one.queue_id, one.queue_offset)
        for (topic, _), queue in shown.queues.items()
        if topic == TASKS
        for one in queue
        if one.body not in dead
    }
    return places - kept.settled - kept.doubtful


async def _is_none_late(world: "ClusterWorld") -> bool:
    """Return whether all delayed messages have come that have to."""
    await _follow(world)
    return not world.kept.late(world.deliveries.shown.bodies(REMINDERS)) and not world.levels.waiting


async def _check_groups(world: "ClusterWorld") -> None:
    """Compare policies and positions with the state of a Delivery that has read the journal."""
    for group, count in world.kept.attempts_max.items():
        found = await _group(world, group)
        known = 0 if found is None else found.policy.attempts_max
        expect(count in (None, known), f"group {group} has {known} attempts, and {count} were answered as set")
    for group, positions in world.kept.positions.items():
        if positions is None:
            continue
        found = await _group(world, group)
        queues = [] if found is None else found.queues
        at = {one.queue_id: one.committed_queue_offset for one in queues if one.topic == TASKS}
        expect(positions.items() <= at.items(), f"group {group} is at {at}, and was answered to be at {positions}")


async def _check_levels(world: "ClusterWorld") -> None:
    """Compare messages with a delay level, after a Delivery that read the journal had its time for them."""
    await _asked(world, lambda delivery: ask(world, delivery.process, delivery.owner.engine))
    await asyncio.sleep(LEVELS_S)
    await _follow(world)
    expect(not world.levels.waiting, f"{world.levels.waiting[:5]} do not come")
    world.levels.check_acknowledged()
    if (leader := world.leader) is not None:
        await world.deliveries.stop(world.deliveries.at(leader))
        at = {level: position for name, level, position in world.deliveries.level_positions() if name == leader.name}
        came = {level: count for level, count in world.levels.delivered_counts.items() if count}
        expect(at == came, f"after an orderly stop the index of {leader.name} has delay levels at {at}, not {came}")


async def _group(world: "ClusterWorld", name: str) -> groups_pb.Group | None:
    """Return the known state of a group, None if there is no such group."""
    request = groups_pb.GetGroupRequest(group=name)
    answer = await _asked(
        world,
        lambda delivery: ask(world, delivery.process, lambda: delivery.groups.GetGroup(request)),
        "GROUP_NOT_FOUND",
    )
    return answer.value.group if answer.is_done else None


async def _asked(
    world: "ClusterWorld", call: Callable[[Delivery], Awaitable[Answer]], refusal: str = "no refusal"
) -> Answer:
    """Call the Delivery that leads until it answers, or refuses for this reason."""
    answers: list[Answer] = []

    async def is_answered() -> bool:
        if (delivery := _serving(world)) is not None:
            answers.append(await call(delivery))
        return bool(answers) and (answers[-1].is_done or answers[-1].reason == refusal)

    await _until(world, "an answer", is_answered)
    return answers[-1]


async def _until(world: "ClusterWorld", what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    end_s = world.loop.time() + REST_S_MAX
    while not await holds():
        expect(world.loop.time() < end_s, f"{what} did not come although all works:\n{world.told()}")
        if (delivery := _serving(world)) is not None:  # it delivers waiting messages after any request
            await ask(world, delivery.process, delivery.owner.engine)
        await asyncio.sleep(AGAIN_S)


def _serving(world: "ClusterWorld") -> Delivery | None:
    leader: Any = world.leader
    return None if leader is None else world.deliveries.at(leader)


async def _follow(world: "ClusterWorld") -> None:
    if world.leader is not None and world.leader.log is not None:
        await world.deliveries.shown.read(world.leader.log)
