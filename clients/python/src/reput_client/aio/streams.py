# SPDX-License-Identifier: Apache-2.0
"""Parts that differ between event loops and threads: requests in a queue, answers in time, an early begin."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc

from reput_client.core.errors import no_answer


class AsyncRequests(asyncio.Queue[bytes | None]):
    """The requests of a stream, for gRPC to fetch. None ends them."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (request := await self.get()) is not None:
            yield request


async def next_in_time(call: Any, timeout_s: float | None) -> Any:
    """Return a stream's next answer, None at its end. Raises grpc.RpcError.

    Raises DeadlineExceededError after `timeout_s` seconds; the call is cancelled then.
    """
    try:
        async with asyncio.timeout(timeout_s):
            answer = await call.read()
    except TimeoutError:
        call.cancel()
        raise no_answer(timeout_s) from None
    return None if answer is grpc.aio.EOF else answer


def at_once(begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do nothing: a constructor can't wait on an event loop, so the first call that can wait begins."""
