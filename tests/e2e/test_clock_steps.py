# SPDX-License-Identifier: Apache-2.0
"""The clock of a log's machine is set while real services run: no message is early, lost, or rescheduled without end.

Log and Indexer are servers of this process, whose clock the test moves. Delivery is a process with the true clock.
"""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.delivery.v1.transaction_service_pb2 import ReceiveChecksRequest
from reput.indexer.v1.queue_service_pb2 import ListQueuesRequest

from libs.formats.state.system_topics import TIMER_TOPIC
from libs.machine.clock import SystemClock
from tests.support.delivery_stack import TOPIC, Stack, delivery_stack, milliseconds
from tests.support.patience import LIMIT_S

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
COUNT, DELAY_MS = 20, 1_500


async def received(stack: Stack, count: int) -> dict[bytes, list[int]]:
    """Receive and settle this many messages. Return the store times of each."""
    found: dict[bytes, list[int]] = {}
    async with asyncio.timeout(LIMIT_S):
        while sum(map(len, found.values())) < count:
            some = await stack.receive(100)
            await stack.settle("ack", *some)
            for one in some:
                found.setdefault(one.message.body, []).append(one.message.store_time_ms)
    return found


@pytest.mark.parametrize("steps_ms", [(HOUR_MS, 0), (0, -HOUR_MS)], ids=["was_ahead", "set_back"])
async def test_the_clock_of_the_log_is_set(
    steps_ms: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delays and levels end, each message arrives once, and the producer of a transaction is asked."""
    step_ms = 0
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: time.time_ns() // 1_000_000 + step_ms)
    async with delivery_stack(tmp_path) as stack:
        for step_ms in steps_ms:  # noqa: B007 - the clock has it
            await stack.append(b"plain")
        names = {"TIMER_DELAY_MS": str(DELAY_MS)}, {"DELAY": "1"}
        messages = [
            AppendMessage(topic=TOPIC, body=b"%d" % number, properties=names[number % 2]) for number in range(COUNT)
        ]
        sent_ms = (await stack.log.append.Append(AppendRequest(messages=messages))).result.store_time_ms
        half = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "u", "CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}
        await stack.append(b"half", properties=half)
        found = await received(stack, COUNT + 2)
        assert Counter({body: len(times) for body, times in found.items()}) == {
            b"plain": 2,
            **{b"%d" % number: 1 for number in range(COUNT)},
        }
        assert all(found[b"%d" % number][0] >= sent_ms + DELAY_MS for number in range(0, COUNT, 2))
        queues = await stack.index.queues.ListQueues(ListQueuesRequest(topic=TIMER_TOPIC))
        assert [one.max_queue_offset for one in queues.queues] == [COUNT // 2]
        request = ReceiveChecksRequest(producer_groups=["p"], check_count_max=1, wait=milliseconds(30_000))
        answer = await stack.client.transactions.ReceiveChecks(request)
        assert [one.message.body for one in answer.checks] == [b"half"]
