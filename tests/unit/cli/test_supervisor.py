# SPDX-License-Identifier: Apache-2.0
"""Signals to children: the exit code of a child is known, with a signal at any moment near its end."""

import asyncio
import random
import signal
import time

from cli.supervisor import send_signal

CHILD_COUNT = 100
EXIT_CODE = 3


async def test_a_child_that_just_ends_keeps_its_exit_code() -> None:
    """A child has its own exit code or that of SIGKILL, and never another code."""
    codes = set()
    for _ in range(CHILD_COUNT):
        child = await asyncio.create_subprocess_exec("sh", "-c", f"exit {EXIT_CODE}")
        end_s = time.monotonic() + random.uniform(0, 0.003)
        while time.monotonic() < end_s:
            send_signal(child, signal.SIGCONT)
        send_signal(child, signal.SIGKILL)
        codes.add(await child.wait())
    assert codes <= {EXIT_CODE, -signal.SIGKILL}
