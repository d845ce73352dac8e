# SPDX-License-Identifier: Apache-2.0
"""The log of a call: a call without an open log is refused, and a call stays with the log at which it began."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from reput.commitlog.v1 import log_service_pb2, segment_service_pb2

from libs.machine.failpoints import armed
from libs.requests.errors import Stopping
from libs.runtime.rpc.errors import NotReady
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.append_servicer import AppendServicer
from services.commitlog.rpc.current_log import CurrentLog
from services.commitlog.rpc.segment_servicer import SegmentServicer
from tests.support.calls import Context, log_servicer_of
from tests.support.commitlog import LISTEN_HOST, Machine, fill, make_config, message, request
from tests.support.patience import eventually

FROM_THE_START = log_service_pb2.DispatchRequest()


async def test_a_call_while_there_is_no_log_is_refused() -> None:
    """Before the recovery and after the stop, not with a part that is missing, and in between it has the log."""
    machine = Machine()
    process = CommitLog(make_config(), machine.fs, machine.clock, on_failure=machine.failures.append)
    current = CurrentLog(process)
    segments = SegmentServicer(current)
    with pytest.raises(NotReady, match="recovering"):
        await segments.ListSegments(segment_service_pb2.ListSegmentsRequest(), None)
    log = await process.open(LISTEN_HOST)
    assert current() is log
    await process.close()
    with pytest.raises(NotReady, match="recovering"):
        current()


async def test_an_append_is_acknowledged_by_the_log_that_took_it() -> None:
    """A log that is opened meanwhile has more on its disk than the append needs, and that does not count for it."""
    one, other = Machine(), Machine()
    async with one.running() as former, other.running() as later:
        await fill(later, 2, durability=2)
        logs = iter((former, later))
        streams, inflight = InflightBudget("streams", 1), InflightBudget("bytes", 1 << 20)
        servicer = AppendServicer(lambda: next(logs), streams, inflight, make_config())
        disk_is_slow = threading.Event()
        with armed("segment.before_sync", disk_is_slow.wait):
            call = asyncio.create_task(servicer.Append(request(message(), durability=2), Context()))
            await eventually(lambda: former.pipeline.batch_count == 1)
            for _ in range(100):
                await asyncio.sleep(0)
            assert not call.done()
            disk_is_slow.set()
            await call


async def test_a_log_that_is_closed_ends_its_streams_of_services() -> None:
    """A stream that waits for records ends with STOPPING, and a new stream is refused; the next log serves again."""
    machine = Machine()
    async with machine.running() as log:
        servicer = log_servicer_of(log)
        await fill(log, 1)
        steps = servicer.Dispatch(FROM_THE_START, None)
        waiting = asyncio.create_task(_all(steps))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        log.followers.drain()
        with pytest.raises(Stopping):
            await waiting
        with pytest.raises(Stopping):
            await _all(servicer.Dispatch(FROM_THE_START, None))
    async with machine.running() as log:
        steps = log_servicer_of(log).Dispatch(FROM_THE_START, None)
        assert (await anext(steps)).handshake.history_id == log.epochs.history_id
        await steps.aclose()


async def _all(steps: AsyncGenerator[Any, None]) -> None:
    async for _ in steps:
        pass
