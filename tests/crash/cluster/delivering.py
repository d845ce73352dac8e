# SPDX-License-Identifier: Apache-2.0
"""Clients of Delivery and of the gateway: each call that promises something, to the leader, with faults of these two.

They record the answers (`kept.py`), and notice at once a contradiction to an earlier answer.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.delivery.v1 import dead_letter_service_pb2 as letters_pb
from reput.delivery.v1 import delay_service_pb2 as delays_pb
from reput.delivery.v1 import delivery_service_pb2 as pb
from reput.delivery.v1 import group_service_pb2 as groups_pb

from libs.runtime.rpc.timestamps import timestamp
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.crash.cluster.clients import whom
from tests.crash.cluster.deliveries import Answer, Delivery, ask
from tests.crash.cluster.kept import REMINDERS, SALES, TASKS, WORKERS
from tests.crash.sim.model import expect
from tests.support.calls import Context

if TYPE_CHECKING:
    from tests.crash.cluster.world import ClusterWorld

PAUSES_S = (0.05, 0.3, 1.5)
LOOKS_S = (0.05, 0.2)
LONG_PAUSES_S = (0.5, 2.0, 6.0)
DELAYS_MS = (500, 3_000, 20_000)
INVISIBLE_MS = 4_000
VERBS = ("ack", "ack", "ack", "nack", "nack", "extend", "terminate", "bury")
FINAL = ("ack", "terminate", "bury")
ACTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "ack": lambda: {"ack": pb.Ack()},
    "nack": lambda: {"nack": pb.Nack(delay=Duration(seconds=1))},
    "extend": lambda: {"extend": pb.Extend(invisible=Duration(seconds=2))},
    "terminate": lambda: {"terminate": pb.Terminate()},
    "bury": lambda: {"bury": pb.Bury()},
}
GROUP_COUNT = 3
ASK_COUNT = 4
"""How often a call is made again whose answer is missing."""


async def serving(world: "ClusterWorld", chance: random.Random) -> Delivery | None:
    """Return a Delivery beside a log that thinks that it leads, which may have been ended a moment ago."""
    node = whom(world, chance)
    if node is None:
        return None
    if (draw := chance.random()) < 0.04:
        delivery = world.deliveries.at(node)
        await world.deliveries.stop(delivery) if draw < 0.02 else world.deliveries.kill(delivery)
    return world.deliveries.at(node)


async def send(world: "ClusterWorld", delivery: Delivery, topic: str, mark: bytes, **system: Any) -> Answer:
    """Send a message through the gateway. The value is the gateway's entry for it."""
    properties = wire.SystemProperties(message_id=mark.decode().strip("<>").replace(" ", "-"), **system)
    message = wire.Message(topic=wire.Resource(name=topic), body=mark, system_properties=properties)
    request = wire.SendMessageRequest(messages=[message])
    answer = await told(world, delivery, "SendMessage", request)
    return answer._replace(value=answer.value.entries[0]) if answer.is_done else answer


async def told(world: "ClusterWorld", delivery: Delivery, method: str, request: Any) -> Answer:
    """Call the gateway, which answers with a status. The reason is the name of its code."""
    call = getattr(delivery.gateway, method)
    answer = await ask(world, delivery.process, lambda: call(request, Context()))
    if not answer.is_done or answer.value.status.code == wire.CODE_OK:
        return answer
    return Answer(is_done=False, reason=wire.Code.Name(answer.value.status.code).removeprefix("CODE_"))


async def work(world: "ClusterWorld", chance: random.Random) -> None:
    """Send tasks, and let a group receive and settle them in every way."""
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        if (delivery := await serving(world, chance)) is None:
            continue
        if chance.random() < 0.7:
            mark = world.kept.mark("task")
            if (await send(world, delivery, TASKS, mark)).is_done:
                world.kept.sent[TASKS].add(mark)
        received = await receive(world, delivery, chance.choice((1, 3)))
        if received:
            await settle(world, delivery, received, chance)


async def receive(world: "ClusterWorld", delivery: Delivery, count: int, wait_s: int = 1) -> list[pb.ReceivedMessage]:
    """Receive tasks, none of which was answered as settled before."""
    request = pb.ReceiveRequest(
        group=WORKERS, topic=TASKS, message_count_max=count, wait=Duration(seconds=wait_s),
        invisible=Duration(seconds=INVISIBLE_MS // 1000),
    )  # fmt: skip
    settled = set(world.kept.settled)
    answer = await ask(world, delivery.process, lambda: delivery.deliveries.Receive(request))
    received = list(answer.value.messages) if answer.is_done else []
    for one in received:
        world.kept.received((one.message.queue_id, one.message.queue_offset), settled)
    return received


async def settle(
    world: "ClusterWorld", delivery: Delivery, received: list[pb.ReceivedMessage], chance: random.Random
) -> None:
    """Settle tasks, each in a random way, all at once."""
    verbs = [chance.choice(VERBS) for _ in received]
    entries = [pb.SettleEntry(handle=one.handle, **ACTIONS[verb]()) for one, verb in zip(received, verbs, strict=True)]
    answer = await ask(world, delivery.process, lambda: delivery.deliveries.Settle(pb.SettleRequest(entries=entries)))
    for index, (one, verb) in enumerate(zip(received, verbs, strict=True)):
        is_done = answer.is_done and not answer.value.outcomes[index].HasField("error")
        world.count(f"{verb} answered", is_done)
        if verb not in FINAL:
            continue
        place = one.message.queue_id, one.message.queue_offset
        (world.kept.settled if is_done else world.kept.doubtful).add(place)
        if is_done and verb == "bury":
            world.kept.buried.add(one.message.body)


async def replay(world: "ClusterWorld", chance: random.Random) -> None:
    """Bring dead letters back now and then."""
    while not world.is_over:
        await asyncio.sleep(chance.choice(LONG_PAUSES_S))
        if (delivery := await serving(world, chance)) is not None:
            await replay_once(world, delivery)


async def replay_once(world: "ClusterWorld", delivery: Delivery) -> Answer:
    """Bring all dead letters back. The value is the reported number of letters."""
    count = [0]
    request = letters_pb.ReplayDeadLettersRequest(group=WORKERS)
    answer = await ask(world, delivery.process, lambda: delivery.replay(request, count))
    world.kept.replayed_count += count[0]
    world.count("dead letters replayed", count[0])
    return answer._replace(value=count[0])


async def remind(world: "ClusterWorld", chance: random.Random) -> None:
    """Send messages that come at a time or after a delay, and take some of them back."""
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        if (delivery := await serving(world, chance)) is None:
            continue
        mark, delay_ms = world.kept.mark("reminder"), chance.choice(DELAYS_MS)
        cancel = await (remind_at if chance.random() < 0.6 else remind_after)(world, delivery, mark, delay_ms)
        if cancel is None:
            continue
        world.kept.sent[REMINDERS].add(mark)
        world.count("delayed")
        if chance.random() < 0.6:
            await asyncio.sleep(chance.choice(PAUSES_S))
            await take_back(world, mark, cancel, chance)


Cancel = Callable[[Delivery], Any]
"""Makes the call that takes a message back."""


async def remind_at(world: "ClusterWorld", delivery: Delivery, mark: bytes, delay_ms: int) -> Cancel | None:
    """Send a message with a time through the gateway, which gives a handle to recall it by."""
    due_ms = delivery.now_ms() + delay_ms
    kind = wire.MESSAGE_TYPE_DELAY
    answer = await send(world, delivery, REMINDERS, mark, message_type=kind, delivery_timestamp=timestamp(due_ms))
    if not answer.is_done:
        return None
    request = wire.RecallMessageRequest(topic=wire.Resource(name=REMINDERS), recall_handle=answer.value.recall_handle)
    return lambda other: told(world, other, "RecallMessage", request)


async def remind_after(world: "ClusterWorld", delivery: Delivery, mark: bytes, delay_ms: int) -> Cancel | None:
    """Send a message with a delay, which is cancelled by its id."""
    name = mark.decode().strip("<>").replace(" ", "-")
    properties = {"UNIQ_KEY": name, "TIMER_DELAY_MS": str(delay_ms)}
    message = AppendMessage(topic=REMINDERS, body=mark, properties=properties)
    if not (await ask(world, delivery.process, lambda: delivery.gateway_log.append([message]))).is_done:
        return None
    request = delays_pb.CancelDelayedRequest(topic=REMINDERS, message_id=name)
    return lambda other: ask(world, other.process, lambda: other.delays.CancelDelayed(request))


async def take_back(world: "ClusterWorld", mark: bytes, cancel: Cancel, chance: random.Random) -> None:
    """Cancel a message. A message whose cancellation is refused for its time is delivered, or comes by itself."""
    cancels = world.kept.cancels
    for _ in range(ASK_COUNT):
        if (delivery := await serving(world, chance)) is not None:
            cancels[mark] = None
            answer: Answer = await cancel(delivery)
            if answer.is_done:
                cancels[mark] = True
                world.count("cancelled")
                return
            if answer.reason in ("DELAYED_TOO_LATE", "ILLEGAL_DELIVERY_TIME", "DELAYED_NOT_FOUND", "MESSAGE_NOT_FOUND"):
                cancels[mark] = False
                world.count("cancels too late")
                return
        await asyncio.sleep(chance.choice(PAUSES_S))


async def transact(world: "ClusterWorld", chance: random.Random) -> None:
    """Begin transactions, and commit them, roll them back, or leave them open."""
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        if (delivery := await serving(world, chance)) is None:
            continue
        mark = world.kept.mark("sale")
        world.kept.ends[mark] = False
        begun = await send(world, delivery, SALES, mark, message_type=wire.MESSAGE_TYPE_TRANSACTION)
        if begun.is_done and (draw := chance.random()) < 0.9:
            await asyncio.sleep(chance.choice(PAUSES_S))
            await end_transaction(world, mark, begun.value.transaction_id, is_committed=draw < 0.6, chance=chance)


async def end_transaction(
    world: "ClusterWorld", mark: bytes, name: str, *, is_committed: bool, chance: random.Random
) -> None:
    """End a transaction, until that is answered. The contrary is refused then."""
    kinds = wire.TRANSACTION_RESOLUTION_ROLLBACK, wire.TRANSACTION_RESOLUTION_COMMIT

    async def ended(how: bool) -> Answer:
        delivery = await serving(world, chance)
        if delivery is None:
            return Answer(is_done=False)
        request = wire.EndTransactionRequest(
            topic=wire.Resource(name=SALES), transaction_id=name, resolution=kinds[how]
        )
        return await told(world, delivery, "EndTransaction", request)

    for _ in range(ASK_COUNT):
        if is_committed:
            world.kept.ends[mark] = None
        answer = await ended(is_committed)
        if answer.is_done:
            world.kept.ends[mark] = is_committed
            world.count("transactions ended")
            break
        expect(answer.reason != "INVALID_TRANSACTION_ID", f"{name} was begun, and its end is refused")
        await asyncio.sleep(chance.choice(PAUSES_S))
    else:
        return
    if chance.random() < 0.3:
        contrary = await ended(not is_committed)
        expect(not contrary.is_done, f"{name} ended, commit: {is_committed}, and the contrary was answered as done")


async def configure(world: "ClusterWorld", chance: random.Random) -> None:
    """Give groups policies, and delete groups."""
    known = world.kept.attempts_max
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        if (delivery := await serving(world, chance)) is None:
            continue
        group, count = f"set-{chance.randrange(GROUP_COUNT)}", chance.randint(1, 100)
        if chance.random() < 0.8:
            policy = groups_pb.GroupPolicy(attempts_max=count)
            request: Any = groups_pb.SetGroupRequest(group=group, policy=policy)
            call = delivery.groups.SetGroup
        else:
            count, request, call = 0, groups_pb.DeleteGroupRequest(group=group), delivery.groups.DeleteGroup
        known[group] = None
        if (await ask(world, delivery.process, lambda c=call, r=request: c(r))).is_done:  # type: ignore[misc]
            known[group] = count
            world.count("groups set")


async def move(world: "ClusterWorld", chance: random.Random) -> None:
    """Move groups to a time, or to an end. They have no receivers."""
    known = world.kept.positions
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        if (delivery := await serving(world, chance)) is None:
            continue
        group, to = f"moved-{chance.randrange(GROUP_COUNT)}", chance.choice(("earliest", "latest", "time"))
        past = timestamp(delivery.now_ms() - chance.choice(DELAYS_MS))
        request = groups_pb.ResetGroupRequest(group=group, topic=TASKS, **{to: past if to == "time" else True})
        known[group] = None
        answer = await ask(world, delivery.process, lambda r=request, d=delivery: d.groups.ResetGroup(r))  # type: ignore[misc]
        if answer.is_done:
            known[group] = {one.queue_id: one.to_queue_offset for one in answer.value.moves}
            world.count("groups moved")


async def schedule(world: "ClusterWorld", chance: random.Random) -> None:
    """Send messages with a delay level, some at once."""
    while not world.is_over:
        await asyncio.sleep(chance.choice(PAUSES_S))
        if (delivery := await serving(world, chance)) is None:
            continue
        some = [world.levels.make(world.kept, chance) for _ in range(chance.choice((1, 1, 2, 6)))]
        if (await ask(world, delivery.process, lambda d=delivery, m=some: d.gateway_log.append(m))).is_done:  # type: ignore[misc]
            world.levels.acknowledged |= {one.body for one in some}
            world.count("scheduled", len(some))


async def watch_levels(world: "ClusterWorld", chance: random.Random) -> None:
    """Compare positions of delay levels with a log that leads and shows all that it has."""
    while not world.is_over:
        await asyncio.sleep(chance.choice(LOOKS_S))
        node = world.leader
        if node is None or (log := node.log) is None or log.marks.visible.value < log.marks.wrote.value:
            continue
        positions = world.deliveries.level_positions()
        if (await ask(world, node.process, lambda one=log: world.deliveries.shown.read(one))).is_done:  # type: ignore[misc]
            world.levels.check_positions(positions)
            world.count("positions of levels compared", len(positions))


CLIENTS = (work, replay, remind, transact, configure, move)
CLIENTS_OF_LEVELS = (schedule, watch_levels)
