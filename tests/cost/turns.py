# SPDX-License-Identifier: Apache-2.0
"""The work of the product between two turns of the event loop, for which others wait while a call is served.

It counts the interpreter's instructions in the product's files (python_work.py), so the figure is the same on every
machine. The work of a call in steps has a bound, the work of any other call grows with its input.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tests.cost.python_work import instructions


@dataclass(slots=True)
class Turns:
    """The turns of a block, known when it is over."""

    count: int = 0
    longest_instruction_count: int = 0


@contextlib.asynccontextmanager
async def turns() -> AsyncIterator[Turns]:
    """Watch the loop within the block: how often others had their turn, and the most that was done between two."""
    found = Turns()
    with instructions() as work:

        async def look() -> None:
            done = work.instruction_count
            while True:
                await asyncio.sleep(0)
                found.count += 1
                found.longest_instruction_count = max(found.longest_instruction_count, work.instruction_count - done)
                done = work.instruction_count

        task = asyncio.create_task(look())
        await asyncio.sleep(0)
        try:
            yield found
        finally:
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
