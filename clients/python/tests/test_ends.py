# SPDX-License-Identifier: Apache-2.0
"""A common end of several calls, against a server that never answers."""

import asyncio
import socket
import time

import pytest
from reput_client import DeadlineExceededError, aio
from reput_client.core.ends import calls_end_at


async def test_calls_end_together_by_their_deadlines() -> None:
    """The end bounds each call of the block and of its tasks, a later inner end does not move it, others are free."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        async with aio.connect(commitlog=target, indexer=target, timeout_s=60) as client:
            begin_s = time.monotonic()
            with calls_end_at(begin_s + 0.5), calls_end_at(begin_s + 50):
                calls = (client.queues.range("orders", queue_id) for queue_id in range(3))
                found = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in found] == [DeadlineExceededError] * 3
            assert 0.5 <= time.monotonic() - begin_s < 30
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.queues.range("orders", 0)
