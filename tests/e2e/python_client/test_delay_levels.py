# SPDX-License-Identifier: Apache-2.0
"""Messages with a delay level, and the state of the levels, with both kinds of clients against a real store."""

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest
import reput_client
from reput_client import DelayLevel, SendResult, aio

from clients.python.tests.support import LIMIT_S
from tests.support.reput_up import Store

pytestmark = pytest.mark.e2e
STORE_FLAGS = ("--delivery", "--delivery-port", "0")


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["send", "aio"])
def test_delay_level(client: reput_client.Client, running: Store, kind: str) -> None:
    """A message with a delay level waits in another topic and arrives in its topic a second later."""
    topic = f"delayed-{kind}"

    async def send() -> SendResult:
        async with aio.connect(**running.targets) as other, other.producer() as producer:
            return await (await producer.send(topic, b"later", queue_id=0, tag="T", delay_level=1))

    if kind == "aio":
        result = asyncio.run(send())
    else:
        with client.producer() as producer:
            result = producer.send(topic, b"later", queue_id=0, tag="T", delay_level=1).result(LIMIT_S)
    assert result.queue_id == 0
    pulled = client.queues.pull("SCHEDULE_TOPIC_XXXX", queue_id=0, queue_offset=result.queue_offset, wait_s=30)
    assert pulled.messages[0].properties["REAL_TOPIC"] == topic
    wait_for(lambda: bool(client.queues.pull(topic, queue_id=0, queue_offset=0).messages))
    (arrived,) = client.queues.pull(topic, queue_id=0, queue_offset=0).messages
    assert (arrived.body, arrived.tag, arrived.unique_id) == (b"later", "T", result.unique_id)
    assert "DELAY" not in arrived.properties
    assert arrived.store_time_ms >= result.store_time_ms + 1_000


@pytest.mark.parametrize("kind", ["send", "aio"])
def test_the_state_of_the_levels(client: reput_client.Client, running: Store, kind: str) -> None:
    """A client gets all levels with their delays and numbers of messages."""

    async def ask() -> Sequence[DelayLevel]:
        async with aio.connect(**running.targets) as other:
            return await other.delayed.levels()

    def levels() -> Sequence[DelayLevel]:
        return asyncio.run(ask()) if kind == "aio" else client.delayed.levels()

    before = levels()
    assert [level.level for level in before] == list(range(1, 19))
    assert (before[0].delay_s, before[17].delay_s) == (1.0, 7200.0)
    count = before[16].waiting_count
    with client.producer() as producer:
        producer.send("much-later", b"x", delay_level=17).result(LIMIT_S)
    wait_for(lambda: levels()[16].waiting_count == count + 1)
    assert levels()[16] == DelayLevel(17, 3600.0, count + 1, 0.0, "")
