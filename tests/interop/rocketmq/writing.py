# SPDX-License-Identifier: Apache-2.0
"""Writes to either store, to the end or until the store is killed under the writes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc
import msgspec

from tests.interop.rocketmq.drafts import V2_TOPIC, Drafts
from tests.interop.rocketmq.history import History, Placed
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqEnded, RocketMqStore
from tests.interop.rocketmq.stored import COMMIT, Draft

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROUND_SIZE = 200
ENDLESS = 10_000_000

Write = Callable[[int], Coroutine[Any, Any, None]]
"""Writes about this many messages."""
Put = Callable[[list[Draft]], Awaitable[list[Placed]]]


async def write_reput(store: ReputStore, history: History, drafts: Drafts, count: int) -> None:
    """Append about `count` messages in batches of several sizes."""
    for run in drafts.runs(count):
        await _put(store.append, history, run)


async def write_rocketmq(store: RocketMqStore, history: History, drafts: Drafts, count: int, *, has_v2: bool) -> None:
    """Put about `count` messages: single messages, batches, whole transactions and, for 5.x, long topics."""
    for _ in range(0, count, ROUND_SIZE):
        await _put(store.put, history, drafts.take(ROUND_SIZE - 24))
        await _put(store.put_batch, history, drafts.batch(15))
        await _put(store.put_batch, history, drafts.batch(1))
        if has_v2:
            await _put(store.put, history, drafts.take(5, topic=V2_TOPIC))
        await _write_transaction(store, history, drafts)


async def killed(history: History, write: Write, count: int, kill: Awaitable[None]) -> None:
    """Write without end, and run `kill` in the midst of it once `count` more messages are acknowledged."""
    target = len(history) + count
    task = asyncio.create_task(write(ENDLESS))
    while len(history) < target and not task.done():  # noqa: ASYNC110 - the history has no bell
        await asyncio.sleep(0.001)
    await kill
    with contextlib.suppress(RocketMqEnded, grpc.aio.AioRpcError, ConnectionError):
        await task


async def _put(put: Put, history: History, drafts: list[Draft]) -> list[Placed]:
    history.send(drafts)
    placed = await put(drafts)
    history.acknowledge(drafts, placed)
    return placed


async def _write_transaction(store: RocketMqStore, history: History, drafts: Drafts) -> None:
    """Write the records of a broker for a committed transaction: half message, message, and the end of the half."""
    half, message, end = drafts.take(3, topic="paid")
    real = {"REAL_TOPIC": "paid", "REAL_QID": "1", "TRAN_MSG": "true", "PGROUP": "payers"}
    half = msgspec.structs.replace(half, topic=HALF_TOPIC, queue_id=0, properties=half.properties | real)
    ((half_offset, half_queue_offset, _),) = await _put(store.put, history, [half])
    message = msgspec.structs.replace(
        message,
        body=half.body,
        sys_flag=COMMIT,
        prepared_transaction_offset=half_offset,
        properties=message.properties | real,
    )
    body = str(half_queue_offset).encode()
    end = msgspec.structs.replace(end, topic=OP_TOPIC, queue_id=0, body=body, properties={"TAGS": "d"})
    await _put(store.put, history, [message, end])
