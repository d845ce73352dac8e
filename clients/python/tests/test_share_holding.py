# SPDX-License-Identifier: Apache-2.0
"""The lease extensions of a share consumer, and the end of a transaction, over channels in memory."""

import asyncio
from typing import Any

import pytest
from reput.delivery.v1 import delivery_service_pb2 as pb
from reput.delivery.v1 import group_service_pb2
from reput_client.aio.sharing.consumer import AsyncShareConsumer
from reput_client.aio.sharing.settling import AsyncSettler
from reput_client.aio.transactions import AsyncTransaction
from reput_client.core.errors import ReputError
from reput_client.core.options import Options
from reput_client.core.retry import RetryPolicy
from reput_client.core.sharing.holding import Received, ShareSettings

from clients.python.tests.support import LIMIT_S
from tests.support.patience import eventually


class Channels:
    """Channels that give a single message, refuse acknowledgements, and record extensions."""

    def __init__(self) -> None:
        self.left = [pb.ReceivedMessage(handle="h", attempt=1)]
        self.options, self.retry = Options(), RetryPolicy()
        self.extended: list[str] = []
        self.waits: list[float] = []
        self.was_asked = asyncio.Event()
        self.policy_is_told = asyncio.Event()

    async def run(self, call: Any, _retry: RetryPolicy | None = None) -> Any:
        """See AsyncChannels."""
        request = call.request
        if isinstance(request, group_service_pb2.GetGroupRequest):
            await self.policy_is_told.wait()
            answer = group_service_pb2.GetGroupResponse()
            answer.group.policy.invisible.FromMilliseconds(30)
            return call.convert(answer)
        if isinstance(request, pb.ReceiveRequest):
            self.waits.append(request.wait.ToTimedelta().total_seconds())
            await asyncio.sleep(0.001)
            given, self.left = self.left, []
            return call.convert(pb.ReceiveResponse(messages=given))
        if isinstance(request, pb.SettleRequest) and request.entries[0].WhichOneof("action") == "extend":
            self.extended += [entry.handle for entry in request.entries]
            return call.convert(pb.SettleResponse(outcomes=[pb.SettleOutcome() for _ in request.entries]))
        self.was_asked.set()
        raise ReputError("nobody is there")


def consumer(channels: Channels, **words: Any) -> AsyncShareConsumer:
    settler = AsyncSettler(channels)  # type: ignore[arg-type]
    return AsyncShareConsumer(channels, settler, "t", ShareSettings("g", **words))  # type: ignore[arg-type]


def ticking() -> int:
    """How many tasks ask for more time."""
    return sum("AsyncTicker" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_a_message_whose_acknowledgement_failed_is_not_kept() -> None:
    """No callback works on it any more: it comes again when its lease is over, not after `hold_s_max`."""
    channels = Channels()
    subject = consumer(channels, invisible_s=0.03)

    async def handle(_: Received) -> None:
        await asyncio.sleep(0)

    running = asyncio.create_task(subject.run(handle))
    async with asyncio.timeout(LIMIT_S):
        await channels.was_asked.wait()
    await eventually(lambda: "held=0" in repr(subject))
    before = len(channels.extended)
    await asyncio.sleep(0.1)
    assert len(channels.extended) == before
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_receives_of_one_moment_share_what_asks_for_more_time() -> None:
    """Of two receives at the same time, a single receive starts the extensions. A closed consumer extends nothing."""
    channels = Channels()
    subject = consumer(channels)
    receiving = [asyncio.create_task(subject.receive()) for _ in range(2)]
    await asyncio.sleep(0)
    channels.policy_is_told.set()
    received = await asyncio.gather(*receiving)
    assert [one.handle for some in received for one in some] == ["h"]
    assert ticking() == 1
    await subject.close()
    assert ticking() == 0

    channels = Channels()
    subject = consumer(channels)
    late = asyncio.create_task(subject.receive())
    await asyncio.sleep(0)
    await subject.close()
    channels.policy_is_told.set()
    assert await late == []
    assert ticking() == 0


async def test_a_roll_back_that_fails_hides_no_exception() -> None:
    """The error is the exception of the block. A commit that fails raises as usual."""
    channels: Any = Channels()
    with pytest.raises(KeyError, match="card"):
        async with AsyncTransaction(channels, "t1", "shop"):
            raise KeyError("card")
    with pytest.raises(ReputError, match="nobody is there"):
        async with AsyncTransaction(channels, "t1", "shop"):
            pass


async def test_a_consumer_waits_as_long_as_it_is_told() -> None:
    """`poll_s` is the wait of each call of `run`, and is refused outside of what the store takes."""
    channels = Channels()
    subject = consumer(channels, invisible_s=30, poll_s=0.25)
    running = asyncio.create_task(subject.run(lambda _: asyncio.sleep(0)))
    await eventually(lambda: channels.waits)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert set(channels.waits) == {0.25}
    for poll_s in (0, 31):
        with pytest.raises(ValueError, match=f"poll_s is {poll_s}: expected 0.01 to 30 seconds"):
            consumer(channels, poll_s=poll_s)
