# SPDX-License-Identifier: Apache-2.0
"""`first_of`: waits for the first of several awaitables."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*awaited: asyncio.Future[Any] | Coroutine[Any, Any, Any], timeout_s: float | None = None) -> bool:
    """Wait until the first of them is done, and cancel the others. Returns False after `timeout_s`."""
    futures = [asyncio.ensure_future(one) for one in awaited]
    try:
        done, _ = await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for future in futures:
            future.cancel()
