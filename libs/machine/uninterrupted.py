# SPDX-License-Identifier: Apache-2.0
"""`uninterrupted`: a change that a caller who goes away can't leave half done.

A cancelled call ends at its next `await`, but the thread that it waits for writes on. Whoever holds a lock around such
a wait would give it up too early, and leave memory and disk apart.
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
    """Mark the task's error as seen, because nobody is left to hear of it and asyncio would complain."""
    if not task.cancelled():
        task.exception()
