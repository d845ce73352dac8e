# SPDX-License-Identifier: Apache-2.0
"""Readers: they read each log and each Indexer as it grows, and ask for the leader, at all times of a round.

Invariants: a reader continues at its position, and begins anew only where readers may be shown records that are taken
back later. Callers: a single event loop.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb

from tests.crash.rounds.load import QUEUE_COUNT, TOPICS
from tests.crash.rounds.machine import Machine
from tests.crash.rounds.promises import Promises
from tests.crash.rounds.trio import Trio, leads

READ_TIMEOUT_S = 2.0
PAUSE_S = 0.05
WAIT = Duration(nanos=20_000_000)


@contextlib.asynccontextmanager
async def reading(trio: Trio, promises: Promises) -> AsyncIterator[None]:
    """Read all for the length of a block."""
    tasks = [
        asyncio.create_task(each)
        for machine in trio.machines.values()
        for each in (_read_log(machine, promises), _read_index(machine, promises), _ask(machine, promises))
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _read_log(machine: Machine, promises: Promises) -> None:
    position = 0
    while True:
        request = log_pb.StreamRecordsRequest(start_physical_offset=position)
        try:
            async for step in machine.calls.log.StreamRecords(request, timeout=READ_TIMEOUT_S):
                promises.sees(f"the log of {machine.name}", step.messages)
                position = step.end_physical_offset
        except grpc.aio.AioRpcError:
            position = position if promises.is_synchronous else 0
        await asyncio.sleep(PAUSE_S)


async def _read_index(machine: Machine, promises: Promises) -> None:
    positions: dict[tuple[str, int], int] = {}
    while True:
        for queue in ((topic, queue_id) for topic in TOPICS for queue_id in range(QUEUE_COUNT)):
            start = positions.get(queue, 0)
            pull = queue_pb.PullRequest(topic=queue[0], queue_id=queue[1], queue_offset=start, wait=WAIT)
            with contextlib.suppress(grpc.aio.AioRpcError):
                found = await machine.reads.queues.Pull(pull, timeout=READ_TIMEOUT_S)
                promises.sees(f"the Indexer of {machine.name}", found.messages)
                positions[queue] = found.next_queue_offset
        await asyncio.sleep(PAUSE_S)


async def _ask(machine: Machine, promises: Promises) -> None:
    while True:
        run, state = machine.run, await machine.status()
        if leads(state):
            promises.leads(machine.name, state.epoch)
        if state.state == log_pb.LOG_STATE_SERVING and run == machine.run:
            promises.shows(run, state.confirmed_physical_offset)
        await asyncio.sleep(PAUSE_S)
