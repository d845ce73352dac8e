# SPDX-License-Identifier: Apache-2.0
"""Groups that share messages, over real services."""

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from reput.delivery.v1 import delivery_service_pb2 as pb
from reput.delivery.v1 import group_service_pb2 as groups_pb
from reput.indexer.v1.queue_service_pb2 import PullRequest

from tests.support import served_commitlog, served_delivery, served_indexer
from tests.support.delivery_stack import GROUP, TOPIC, Stack, delivery_stack, milliseconds
from tests.support.service_process import Refusal
from tests.support.surroundings import free_port


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with delivery_stack(tmp_path) as stack:
        yield stack


async def test_messages_are_shared_and_settled(stack: Stack) -> None:
    """Two receivers get different messages.

    A repeated ack has no effect, and a different settlement is refused with topic and queue.
    """
    await stack.append(b"a", b"b", b"c", queue_id=1)
    first, second = await asyncio.gather(stack.receive(2), stack.receive(1))
    assert sorted(one.message.body for one in [*first, *second]) == [b"a", b"b", b"c"]
    assert {one.attempt for one in first} == {1}
    outcomes = await stack.settle("ack", *first, *second)
    assert [outcome.error.code for outcome in outcomes] == [0, 0, 0]
    assert not await stack.receive(wait_ms=50)
    (repeated,) = await stack.settle("ack", first[0])
    assert repeated.error.code == 0
    (again,) = await stack.settle("nack", first[0])
    refusal = Refusal(again.error)
    assert (refusal.reason, refusal.metadata["topic"], refusal.metadata["queue_id"]) == ("HANDLE_OUTDATED", TOPIC, "1")


async def test_a_condition_decides_what_comes(stack: Stack) -> None:
    """Only messages whose properties match the condition are delivered, and the group continues behind all of them."""
    for price in range(8):
        await stack.append(b"%d" % price, queue_id=0, properties={"price": str(price)})
    received = await stack.receive(where="price BETWEEN 3 AND 4 OR price = 6")
    assert [one.message.body for one in received] == [b"3", b"4", b"6"]
    await stack.settle("ack", *received)
    await stack.until_all_is_settled()


async def test_a_receive_that_waits_hears_of_a_message(stack: Stack) -> None:
    """A message in any queue ends the wait of a receiver."""
    await stack.append(b"a", queue_id=0)
    await stack.settle("ack", *await stack.receive())
    waiting = asyncio.create_task(stack.receive(wait_ms=20_000))
    await asyncio.sleep(0.2)
    await stack.append(b"late", queue_id=3)
    (late,) = await waiting
    assert late.message.body == b"late"


async def test_what_is_not_settled_comes_again_and_ends_among_the_dead_letters(stack: Stack) -> None:
    """A message is delivered as often as the policy allows.

    Then it is a dead letter, which has its origin.
    """
    policy = groups_pb.GroupPolicy(attempts_max=3, backoffs=[milliseconds(1)], invisible=milliseconds(200))
    await stack.client.groups.SetGroup(groups_pb.SetGroupRequest(group=GROUP, policy=policy))
    await stack.append(b"poison", queue_id=0, properties={"KEYS": "k1", "TAGS": "t"})
    attempts = []
    for _ in range(3):
        (poison,) = await stack.receive()
        attempts.append(poison.attempt)
        if len(attempts) == 2:
            (outcome,) = await stack.settle("extend", poison, invisible=milliseconds(300))
            assert outcome.handle not in ("", poison.handle)
        else:
            await stack.settle("nack", poison)
    assert attempts == [1, 2, 3]
    assert not await stack.receive(wait_ms=500)
    request = PullRequest(topic="%DLQ%billing", queue_id=0, wait=Duration(seconds=20))
    (letter,) = (await stack.index.queues.Pull(request)).messages
    assert letter.body == b"poison"
    assert letter.properties["DLQ_ORIGIN_TOPIC"] == TOPIC
    assert letter.properties["DLQ_ORIGIN_MESSAGE_ID"]
    assert (letter.properties["KEYS"], letter.properties["TAGS"]) == ("k1", "t")


async def test_groups_are_looked_at_moved_and_forgotten(stack: Stack) -> None:
    """An operator sees the state of a group, resets it after a dry run, lists groups and deletes them."""
    await stack.append(*(b"%d" % number for number in range(6)), queue_id=0)
    received = await stack.receive(2)
    await stack.settle("ack", received[0])
    found = (await stack.client.groups.GetGroup(groups_pb.GetGroupRequest(group=GROUP))).group
    (queue,) = [one for one in found.queues if one.queue_id == 0]
    assert (queue.committed_queue_offset, queue.next_queue_offset, queue.max_queue_offset) == (1, 2, 6)
    assert (queue.lag, queue.in_flight_count) == (5, 1)
    places = [groups_pb.MessagePlace(topic=TOPIC, queue_id=0, queue_offset=offset) for offset in (0, 1, 5)]
    asked = groups_pb.GetMessageStatesRequest(group=GROUP, messages=places)
    settled, in_flight, later = (await stack.client.groups.GetMessageStates(asked)).states
    assert (settled.stage, later.stage, later.before_count) == (
        groups_pb.MESSAGE_STAGE_SETTLED,
        groups_pb.MESSAGE_STAGE_NOT_DELIVERED,
        3,
    )
    assert (in_flight.stage, in_flight.attempt) == (groups_pb.MESSAGE_STAGE_IN_FLIGHT, 1)
    assert in_flight.until == received[1].invisible_until
    assert in_flight.connection_number
    open_size = received[1].message.record_size_bytes
    assert queue.lag_bytes == 5 * open_size
    assert queue.HasField("lag_time")
    reset = groups_pb.ResetGroupRequest(group=GROUP, topic=TOPIC, earliest=True, dry_run=True)
    plan = (await stack.client.groups.ResetGroup(reset)).moves
    assert (plan[0].from_queue_offset, plan[0].to_queue_offset, plan[0].settled_count) == (1, 0, 1)
    assert len(await stack.receive(9)) == 4
    reset.dry_run = False
    await stack.client.groups.ResetGroup(reset)
    assert len(await stack.receive(9)) == 6
    await stack.client.groups.SetGroup(groups_pb.SetGroupRequest(group="other"))
    page = await stack.client.groups.ListGroups(groups_pb.ListGroupsRequest(page_size=1))
    rest = await stack.client.groups.ListGroups(groups_pb.ListGroupsRequest(page_token=page.next_page_token))
    assert [one.name for one in [*page.groups, *rest.groups]] == [GROUP, "other"]
    await stack.client.groups.DeleteGroup(groups_pb.DeleteGroupRequest(group=GROUP))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stack.client.groups.GetGroup(groups_pb.GetGroupRequest(group=GROUP))
    assert Refusal(refused.value).reason == "GROUP_NOT_FOUND"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stack.client.groups.GetMessageStates(asked)
    assert Refusal(refused.value).reason == "GROUP_NOT_FOUND"


BAD: Sequence[tuple[dict[str, object], str, str]] = (
    ({"group": ""}, "group", "BAD_ARGUMENT"),
    ({"group": "g" * 123}, "group", "BAD_ARGUMENT"),
    ({"topic": "a/b"}, "topic", "BAD_TOPIC_NAME"),
    ({"topic": "unknown"}, "", "TOPIC_NOT_FOUND"),
    ({"message_count_max": -1}, "message_count_max", "BAD_ARGUMENT"),
    ({"invisible": Duration()}, "invisible in ms", "BAD_ARGUMENT"),
    ({"invisible": Duration(seconds=43_201)}, "invisible in ms", "BAD_ARGUMENT"),
    ({"wait": Duration(seconds=-1)}, "wait", "BAD_ARGUMENT"),
    ({"tag_expression": "x" * 32_768}, "tag_expression", "BAD_ARGUMENT"),
    ({"where": "price >"}, "where", "BAD_ARGUMENT"),
)


async def test_bad_requests_are_refused(stack: Stack) -> None:
    """Every field of a receive is checked, and the refusal names the wrong field."""
    for fields, field, reason in BAD:
        request = pb.ReceiveRequest(**{"group": GROUP, "topic": TOPIC, **fields})  # type: ignore[arg-type]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stack.client.deliveries.Receive(request)
        refusal = Refusal(refused.value)
        assert (refusal.reason, refusal.field) == (reason, field)


async def test_bad_entries_are_refused(stack: Stack) -> None:
    """A settle without entries or action is refused as a whole, a bad handle alone."""
    for entries, field in (([], "entries"), ([pb.SettleEntry(handle="h")], "entries[0].action")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stack.client.deliveries.Settle(pb.SettleRequest(entries=entries))
        assert Refusal(refused.value).field == field
    (outcome,) = (
        await stack.client.deliveries.Settle(pb.SettleRequest(entries=[pb.SettleEntry(handle="h", ack=pb.Ack())]))
    ).outcomes
    assert Refusal(outcome.error).reason == "BAD_ARGUMENT"


class Kills:
    """Receivers that ack their messages during kills, and the messages that they saw."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.acked: set[bytes] = set()
        self.seen: Counter[bytes] = Counter()
        self.broken: list[str] = []
        self.is_over = False

    async def receive(self) -> None:
        """Act as a receiver."""
        while not self.is_over:
            with contextlib.suppress(grpc.aio.AioRpcError):
                received = await self.stack.receive(5, wait_ms=300, invisible=milliseconds(1_000))
                for one in received:
                    self.seen[one.message.body] += 1
                    if one.message.body in self.acked:
                        self.broken.append(f"{one.message.body!r} came again after its ack was answered")
                if received:
                    outcomes = await self.stack.settle("ack", *received)
                    done = [one for one, outcome in zip(received, outcomes, strict=True) if not outcome.error.code]
                    self.acked |= {one.message.body for one in done}


async def test_kills_lose_nothing_and_bring_nothing_back_that_was_settled(tmp_path: Path) -> None:
    """Through repeated kills of log, index and Delivery every message is delivered.

    No message is delivered after its ack was answered.
    """
    chance = random.Random(7)
    ports = [free_port() for _ in range(3)]
    log_target, index_target, target = (f"127.0.0.1:{port}" for port in ports)
    starts = [
        lambda: served_commitlog.Process.start(tmp_path, "--port", str(ports[0])),
        lambda: served_indexer.Process.start(tmp_path, "--port", str(ports[1]), "--commitlog-target", log_target),
        lambda: served_delivery.Process.start(
            tmp_path, "--port", str(ports[2]), "--commitlog-target", log_target, "--indexer-target", index_target
        ),
    ]
    processes = [await (await start()).wait_serving() for start in starts]
    everything = {b"m%d" % number for number in range(3_000)}
    try:
        async with (
            processes[0].client() as log,  # type: ignore[attr-defined]
            processes[1].client() as index,  # type: ignore[attr-defined]
            served_delivery.client_of(target) as client,
        ):
            stack = Stack(log, index, client)
            await stack.append(*sorted(everything))
            kills = Kills(stack)
            receivers = [asyncio.create_task(kills.receive()) for _ in range(3)]
            for _ in range(10):
                await asyncio.sleep(chance.uniform(0.05, 0.8))
                which = chance.choice([0, 1, 2, 2, 2])
                await processes[which].end(signal.SIGKILL)
                processes[which] = await (await starts[which]()).wait_serving()
            await stack.until_all_is_settled()
            kills.is_over = True
            await asyncio.gather(*receivers)
    finally:
        for process in reversed(processes):
            await process.end(signal.SIGKILL)
    assert kills.broken == []
    assert set(kills.seen) == everything
    assert kills.acked <= everything
    assert len(kills.acked) > len(everything) / 2
