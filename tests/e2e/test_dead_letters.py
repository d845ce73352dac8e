# SPDX-License-Identifier: Apache-2.0
"""Messages that a group could not process, over real services: the content of a dead letter, and its replay."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.commitlog.v1.topic_service_pb2 import UpdateTopicRequest
from reput.delivery.v1 import dead_letter_service_pb2 as pb
from reput.delivery.v1.group_service_pb2 import GetGroupRequest

from libs.formats.limits import PROPERTIES_SIZE_BYTES_MAX
from tests.support import served_commitlog, served_delivery, served_indexer
from tests.support.delivery_stack import GROUP, TOPIC, Stack, delivery_stack, milliseconds
from tests.support.patience import LIMIT_S
from tests.support.service_process import Refusal
from tests.support.surroundings import free_port


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with delivery_stack(tmp_path) as stack:
        yield stack


async def bury(stack: Stack, count: int) -> None:
    """Receive this many messages, bury them, and wait until the dead letters are indexed."""
    buried = 0
    while buried < count:
        received = await stack.receive(count - buried)
        assert all(not outcome.error.code for outcome in await stack.settle("bury", *received))
        buried += len(received)
    async with asyncio.timeout(LIMIT_S):
        while await dead_letter_count(stack) < count:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)


async def dead_letter_count(stack: Stack) -> int:
    return (await stack.client.groups.GetGroup(GetGroupRequest(group=GROUP))).group.dead_letter_count


async def listed(stack: Stack, **fields: object) -> list[pb.DeadLetter]:
    """Return all letters, page by page."""
    request = pb.ListDeadLettersRequest(group=GROUP, **fields)  # type: ignore[arg-type]
    found: list[pb.DeadLetter] = []
    while True:
        page = await stack.client.letters.ListDeadLetters(request)
        found += page.letters
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def replay(stack: Stack, **fields: object) -> pb.ReplayDeadLettersResponse:
    """Replay to the end, and return the result."""
    request = pb.ReplayDeadLettersRequest(group=GROUP, **fields)  # type: ignore[arg-type]
    answers = [answer async for answer in stack.client.letters.ReplayDeadLetters(request)]
    assert answers[-1].is_done
    return answers[-1]


async def test_a_letter_tells_where_it_came_from_and_goes_back(stack: Stack) -> None:
    """A dead letter has the topic, queue, offset, id and attempts of its message.

    A replay sends the message as it was, once.
    """
    properties = {"KEYS": "k1", "TAGS": "t", "UNIQ_KEY": "id-1", "price": "7"}
    await stack.append(b"poison", queue_id=2, properties=properties, flag=3)
    (first,) = await stack.receive()
    await stack.settle("nack", first, delay=milliseconds(0))
    await bury(stack, 1)
    (letter,) = await listed(stack)
    told = (letter.origin_topic, letter.origin_queue_id, letter.origin_queue_offset, letter.origin_message_id)
    assert (*told, letter.attempt_count) == (TOPIC, 2, 0, "id-1", 2)
    group = (await stack.client.groups.GetGroup(GetGroupRequest(group=GROUP))).group
    assert (group.dead_letter_count, [queue.lag for queue in group.queues]) == (1, [0, 0, 0, 0])
    dry = await replay(stack, dry_run=True)
    assert dry.topics == [pb.ReplayedTopic(topic=TOPIC, replayed_count=1)]
    assert await listed(stack) == [letter]
    assert (await replay(stack)).topics == dry.topics
    (again,) = await stack.receive()
    message = again.message
    assert (message.body, dict(message.properties), message.flag) == (b"poison", properties, 3)
    assert (again.attempt, message.born_time_ms) == (1, first.message.born_time_ms)
    assert (await replay(stack)).topics == []
    assert await listed(stack) == []


async def test_letters_are_chosen(stack: Stack) -> None:
    """A condition, a time and single places select letters, for lists and replays, and pages follow each other."""
    for number in range(10):
        await stack.append(b"%d" % number, queue_id=0, properties={"price": str(number)})
    await bury(stack, 10)
    cheap = {"where": "price < 4"}
    letters = await listed(stack, selection=cheap, page_size=3)
    assert sorted(letter.message.body for letter in letters) == [b"0", b"1", b"2", b"3"]
    place = {"queue_id": letters[0].message.queue_id, "queue_offset": letters[0].message.queue_offset}
    assert await listed(stack, selection={"places": [place]}) == [letters[0]]
    assert await listed(stack, selection={"end_time": {"seconds": 1}}) == []
    done = await replay(stack, selection=cheap, letters_per_second_max=1_000)
    assert sum(topic.replayed_count for topic in done.topics) == 4
    received: list[bytes] = []
    while len(received) < 4:
        received += [one.message.body for one in await stack.receive()]
    assert sorted(received) == [b"0", b"1", b"2", b"3"]
    assert len(await listed(stack)) == 6


async def test_a_topic_that_takes_nothing_keeps_its_letters(stack: Stack) -> None:
    """A topic that is not writable refuses a replay with its reason, and the letters stay.

    A letter into the store's own topics is refused, too.
    """
    await stack.append(b"a", queue_id=0)
    await bury(stack, 1)
    await stack.log.topics.UpdateTopic(UpdateTopicRequest(name=TOPIC, is_writable=False))
    forged = {"DLQ_ORIGIN_TOPIC": "rmq_sys_reput_delivery"}
    message = AppendMessage(topic=f"%DLQ%{GROUP}", body=b"forged", queue_id=0, properties=forged)
    await stack.log.append.Append(AppendRequest(messages=[message]))
    while await dead_letter_count(stack) < 2:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.02)
    done = await replay(stack)
    assert [(topic.topic, topic.refused_count, topic.refusal) for topic in done.topics] == [
        (TOPIC, 1, f"topic {TOPIC} is not writable"),
        ("rmq_sys_reput_delivery", 1, "rmq_sys_reput_delivery is no topic of clients"),
    ]
    assert len(await listed(stack)) == 2


async def test_a_message_with_no_room_for_notes_dies_all_the_same(stack: Stack) -> None:
    """A message with properties at their limit becomes a dead letter, too.

    The group continues with the next message.
    """
    large = {"p": "x" * (PROPERTIES_SIZE_BYTES_MAX - 100)}
    await stack.append(b"large", queue_id=0, properties=large)
    await stack.append(b"next", queue_id=0)
    await bury(stack, 2)
    letters = await listed(stack)
    assert {letter.message.body: letter.origin_topic for letter in letters}[b"next"] == TOPIC
    assert {letter.message.body for letter in letters} == {b"large", b"next"}


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"group": ""}, "group", "BAD_ARGUMENT"),
        ({"selection": {"where": "price >"}}, "selection.where", "BAD_ARGUMENT"),
        ({"selection": {"places": [{"queue_id": -1}]}}, "selection.places[0].queue_id", "BAD_ARGUMENT"),
        ({"selection": {"places": [{}] * 1_001}}, "selection.places", "BAD_ARGUMENT"),
        ({"letters_per_second_max": -1}, "letters_per_second_max", "BAD_ARGUMENT"),
        ({"letter_count_max": -1}, "letter_count_max", "BAD_ARGUMENT"),
    ],
)
async def test_bad_requests_are_refused(stack: Stack, fields: dict[str, object], field: str, reason: str) -> None:
    """Every field of a replay is checked, and the refusal names the wrong field."""
    request = pb.ReplayDeadLettersRequest(**{"group": GROUP, **fields})  # type: ignore[arg-type]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        [answer async for answer in stack.client.letters.ReplayDeadLetters(request)]
    refusal = Refusal(refused.value)
    assert (refusal.reason, refusal.field) == (reason, field)


async def test_a_killed_replay_is_repeated_and_doubles_nothing(tmp_path: Path) -> None:
    """After two kills of Delivery during a replay each letter is replayed once."""
    count, port = 300, free_port()
    async with (
        served_commitlog.served(tmp_path) as (commitlog, log),
        served_indexer.served(tmp_path, f"127.0.0.1:{commitlog.server.port}") as (indexer, index),
    ):
        targets = [f"127.0.0.1:{one.server.port}" for one in (commitlog, indexer)]
        flags = ("--port", str(port), "--commitlog-target", targets[0], "--indexer-target", targets[1])
        async with served_delivery.client_of(f"127.0.0.1:{port}") as client:
            stack = Stack(log, index, client)
            await stack.append(*(b"%d" % number for number in range(count)))
            process = await (await served_delivery.Process.start(tmp_path, *flags)).wait_serving()
            await bury(stack, count)
            for _ in range(2):
                request = pb.ReplayDeadLettersRequest(group=GROUP, letters_per_second_max=100)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for _ in client.letters.ReplayDeadLetters(request):
                        await process.end(signal.SIGKILL)
                assert process.child.returncode is not None
                process = await (await served_delivery.Process.start(tmp_path, *flags)).wait_serving()
            await replay(stack)
            bodies: list[bytes] = []
            while len(bodies) < count:
                received = await stack.receive(1_000)
                bodies += [one.message.body for one in received]
                await stack.settle("ack", *received)
            assert not await stack.receive(wait_ms=500)
            await process.end()
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(count)]
