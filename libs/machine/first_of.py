# SPDX-License-Identifier: Apache-2.0
"""Waiting for whatever comes first."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*awaited: asyncio.Future[Any] | Coroutine[Any, Any, Any], timeout_s: float | None = None) -> bool:
    """Wait until one of them is done, and cancel the others. Returns whether one was, within the time."""
    futures = [asyncio.ensure_future(one) for one in awaited]
    try:
        done, _ = await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for future in futures:
            future.cancel()
