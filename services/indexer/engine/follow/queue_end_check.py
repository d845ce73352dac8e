# SPDX-License-Identifier: Apache-2.0
"""QueueEndCheck: looks, after a start that believed a clean stop, whether the queues end where they ended.

Such a start only lists the files of the queues: each is opened when somebody first asks for it. If one has lost units
meanwhile, by a disk or by somebody's hand, its answers lack messages without a word. So all queues are opened once in
the background, one at a time, and what they end with is compared with the sum that the stop wrote down; if it differs,
or one can't be read, all indexes are built anew. An unclean start does the same before it serves.
Callers: the event loop's thread.
"""

import asyncio
import logging

from libs.segments.errors import SegmentUnreadable
from services.indexer.engine.follow.reput_state import ReputStates
from services.indexer.engine.tables.queue_sums import LeftQueues
from services.indexer.engine.tables.queues import ConsumeQueueTable

_log = logging.getLogger(__name__)


class QueueEndCheck:
    """One check. Make it, `start` it once; `stop` ends it wherever it is."""

    def __init__(self, queues: ConsumeQueueTable, states: ReputStates) -> None:
        self._queues = queues
        self._states = states
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, if there is anything to compare."""
        if self._queues.sums.left is not None:
            self._task = asyncio.create_task(self._run(), name="check of the queues' ends")

    async def stop(self) -> None:
        """End it, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        left = self._queues.sums.left
        assert left is not None
        try:
            found = await self._end_sum(left)
        except SegmentUnreadable as error:
            self._build_anew(str(error))
        except OSError as error:
            _log.error("whether the queues end where they ended is not known: %s", error)
        else:
            if found not in (None, left.end_sum):
                self._build_anew(f"the queues have {found} units, but {left.end_sum} when the Indexer stopped")

    async def _end_sum(self, left: LeftQueues) -> int | None:
        """What the ends add up to; None if queues were cut, removed or dropped meanwhile: the sum speaks of others."""
        found = 0
        for queue in left.queues:
            await asyncio.sleep(0)
            if self._queues.sums.left is not left:
                return None
            found += queue.end_as_found
        self._queues.sums.settle(are_as_left=found == left.end_sum)
        return found

    def _build_anew(self, why: str) -> None:
        _log.error("%s: all indexes are built anew", why)
        self._states.request_rebuild()
