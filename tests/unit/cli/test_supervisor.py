# SPDX-License-Identifier: Apache-2.0
"""Signals to children: the exit code of a child is known, with a signal at any moment near its end."""

import asyncio
import os
import random
import signal
import time

from cli.launcher import Launched

CHILD_COUNT = 100
EXIT_CODE = 3


async def test_a_child_that_just_ends_keeps_its_exit_code() -> None:
    """A child has its own exit code or that of SIGKILL, and never another code."""
    codes, loop = set(), asyncio.get_running_loop()
    for _ in range(CHILD_COUNT):
        pid = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"exit {EXIT_CODE}")  # noqa: ASYNC220 - it returns at once
        child = Launched(pid, asyncio.StreamReader())
        loop.add_signal_handler(signal.SIGCHLD, child.reap)
        child.reap()
        end_s = time.monotonic() + random.uniform(0, 0.003)
        while time.monotonic() < end_s:
            child.send_signal(signal.SIGCONT)
        child.send_signal(signal.SIGKILL)
        codes.add(await child.wait())
    loop.remove_signal_handler(signal.SIGCHLD)
    assert codes <= {EXIT_CODE, -signal.SIGKILL}
