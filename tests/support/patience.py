# SPDX-License-Identifier: Apache-2.0
"""The time limits of tests: longer than any machine takes, so that only a test that hangs reaches them."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 240.0


async def eventually(condition: Callable[[], bool], *, timeout_s: float = LIMIT_S) -> None:
    """Wait until a condition holds that other tasks bring about."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


async def freeze(pid: int) -> None:
    """Stop a process with SIGSTOP, and wait until each of its threads is stopped: `kill` returns earlier."""
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: all(_state_of(thread) == "T" for thread in Path(f"/proc/{pid}/task").iterdir()))


def _state_of(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]
