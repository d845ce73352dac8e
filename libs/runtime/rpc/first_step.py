# SPDX-License-Identifier: Apache-2.0
"""The first step of a coroutine without a task: its work up to its first wait.

A coroutine that waits for nothing has its result then, and no task was needed. Any other coroutine is continued by a
task. Invariants: the continued coroutine gets results, errors and a cancellation as if the task had begun it; without a
continuation it is closed.
Not handled: asyncio.current_task, which is None in a first step. So asyncio.timeout can't be used there.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any

Rest = Callable[[], Awaitable[bytes]]
"""Continues a coroutine, and returns its result or raises its error. Called at most once."""


def first_step(work: Coroutine[Any, Any, bytes]) -> bytes | Rest:
    """Run a coroutine up to its first wait. Returns its result, or its rest. Raises nothing: an error is the rest."""
    try:
        waits_for = work.send(None)
    except StopIteration as end:
        result: bytes = end.value
        return result
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is the outcome of this coroutine alone
        return failure(error)
    _mark(waits_for, is_new=False)
    return partial(_continued, work, waits_for)


def failure(error: BaseException) -> Rest:
    """Return the rest of a coroutine that has failed: it raises the error, and does not hold it any more."""
    held = [error]

    async def fail() -> bytes:
        raise held.pop()

    return fail


@types.coroutine
def _continued(work: Coroutine[Any, Any, bytes], waits_for: Any) -> Generator[Any, Any, bytes]:
    """Continue a coroutine that waits for a future, or for its next turn (None)."""
    _mark(waits_for, is_new=True)
    try:
        while True:
            try:
                given = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine
                waits_for = work.throw(error)
            else:
                waits_for = work.send(given)
    except StopIteration as end:
        result: bytes = end.value
        return result


def _mark(waits_for: Any, *, is_new: bool) -> None:
    """Mark a future as one that a task has not seen yet, or has seen. Other tasks may wait for the same future."""
    if waits_for is not None:
        waits_for._asyncio_future_blocking = is_new  # noqa: SLF001 - asyncio's protocol between futures and tasks
