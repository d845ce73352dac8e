# SPDX-License-Identifier: Apache-2.0
"""SmallFiles: the one thread that writes what a log keeps beside its segments.

One, because a loop that was stopped may still be writing when the last save comes. What must be written although the
disk is full is written while the ballast gives way. A save in the background waits for room instead: another program
might use up the room that the ballast gives.
Callers: the loop that owns the log.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext

from libs.machine.workers import workers
from libs.segments.ballast import Ballast


class SmallFiles:
    """Writes one file after the other."""

    def __init__(self, ballast: Ballast) -> None:
        self.ballast = ballast
        self._executor = workers().one_thread("small files")

    async def write(self, save: Callable[[], None], *, with_ballast: bool = False) -> None:
        """Call a function that blocks, where asked for while the ballast gives way. Raises what the function raises."""

        def run() -> None:
            with self.ballast.given_way() if with_ballast else nullcontext():
                save()

        await asyncio.get_running_loop().run_in_executor(self._executor, run)

    async def end(self) -> None:
        """End the thread, after what it does."""
        await asyncio.to_thread(self._executor.shutdown)
