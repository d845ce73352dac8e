# SPDX-License-Identifier: Apache-2.0
"""`uninterrupted`: completes a change even if its caller is cancelled.

A cancelled call ends at its next `await`, but the thread that it waits for continues to write. A caller with a lock
around such a wait would release the lock too early, and memory and disk would differ.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(change: Coroutine[Any, Any, T]) -> T:
    """Run the change to its end, even when the caller is cancelled meanwhile, and return the change's result."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_swallow_error)
        raise


def _swallow_error(task: asyncio.Task[Any]) -> None:
    """Mark the task's error as seen, because no caller waits for it and asyncio would log a complaint."""
    if not task.cancelled():
        task.exception()
