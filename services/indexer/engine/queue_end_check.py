# SPDX-License-Identifier: Apache-2.0
"""QueueEndCheck: looks, after a start that believed a clean stop, whether the queues end where they ended.

Such a start only lists the files of the queues: each is opened when somebody first asks for it. If one has lost units
meanwhile, by a disk or by somebody's hand, its answers lack messages without a word. So all queues are opened once in
the background, one at a time, and what they end with is compared with the sum that the stop wrote down; if it differs,
all indexes are built anew. An unclean start does the same before it serves.
Callers: the event loop's thread.
"""

import asyncio
import contextlib
import logging

from services.indexer.engine.consume_queue_table import ConsumeQueueTable
from services.indexer.engine.reput_loop import ReputLoop

_log = logging.getLogger(__name__)


class QueueEndCheck:
    """One check. Make it, `start` it once; `stop` ends it wherever it is."""

    def __init__(self, queues: ConsumeQueueTable, reput: ReputLoop) -> None:
        self._queues = queues
        self._reput = reput
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, if there is anything to compare."""
        if self._queues.left is not None:
            self._task = asyncio.create_task(self._run(), name="check of the queues' ends")

    async def stop(self) -> None:
        """End it; raises what it met, if anything."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        left = self._queues.left
        assert left is not None
        found = 0
        for queue in left.queues:
            await asyncio.sleep(0)
            if self._queues.left is not left:  # cut, removed or dropped meanwhile: the sum speaks of others
                return
            found += queue.end_as_found
        self._queues.left = None
        if found != left.end_sum:
            _log.error(
                "the queues have %d units, but %d when the Indexer stopped: all indexes are built anew",
                found,
                left.end_sum,
            )
            self._reput.request_rebuild()
