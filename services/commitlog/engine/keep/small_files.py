# SPDX-License-Identifier: Apache-2.0
"""SmallFiles: the single thread that writes the files of a log other than its segments.

The thread is single because a stopped loop may still be writing at the last save. A file that must be written even on a
full disk is written while the ballast gives way. A save in the background waits for room instead, because another
program might use up the room of the ballast.
Callers: the loop that owns the log.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext

from libs.machine.workers import workers
from libs.segments.ballast import Ballast


class SmallFiles:
    """The writer of small files, a single file at a time."""

    def __init__(self, ballast: Ballast) -> None:
        self.ballast = ballast
        self._executor = workers().one_thread("small files")

    async def write(self, save: Callable[[], None], *, with_ballast: bool = False) -> None:
        """Call a blocking function in the thread, with `with_ballast` while the ballast gives way.

        Raises the function's errors.
        """

        def run() -> None:
            with self.ballast.given_way() if with_ballast else nullcontext():
                save()

        await asyncio.get_running_loop().run_in_executor(self._executor, run)

    async def end(self) -> None:
        """End the thread after its current work."""
        await asyncio.to_thread(self._executor.shutdown)
