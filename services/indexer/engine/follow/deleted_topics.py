# SPDX-License-Identifier: Apache-2.0
"""DeletedTopics: on a disk without room, new queues of topics that the log does not know any more are left out.

So an operator can free a disk that is full of queues by deleting their topics: the records of these topics are stepped
over with a note, and the waiting records behind them are entered. While there is room, the log is not asked and nothing
is left out.
Invariants: a queue that has a unit is never left out, so no queue gets a hole; a record of an existing topic is never
stepped over for this reason. The log is asked after the record was read, so the topic was deleted after the append.
Callers: ReputLoop, within a step.
"""

import asyncio
import logging

from libs.formats.records.dispatch_columns import DispatchBatch
from libs.machine.uninterrupted import uninterrupted
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.tables.progress import ProgressFile
from services.indexer.engine.tables.queues import ConsumeQueueTable

_log = logging.getLogger(__name__)


class DeletedTopics:
    """The deleted topics of an Indexer. They are not stored: a start asks the log again when the disk has no room."""

    def __init__(self, queues: ConsumeQueueTable, records: RecordSource, progress: ProgressFile) -> None:
        self._queues = queues
        self._records = records
        self._progress = progress

    async def look_again(self, batch: DispatchBatch) -> None:
        """Allow queues again for topics of the batch that the log knows again. Raises DependencyUnavailable."""
        if left_out := self._queues.left_out:
            asked = left_out.intersection(topic for topic, _ in batch.queues)
            known = {topic for topic in asked if await self._records.has_topic(topic)}
            self._queues.leave_out(left_out - known)

    async def leave_out(self, batch: DispatchBatch) -> bool:
        """Leave out the queues, and their files, that a batch begins for topics that the log does not know.

        Returns whether there were any such topics. Raises DependencyUnavailable, OSError, and the errors of `place`.
        """
        begun = [part for part in self._queues.place(batch) if len(part.entered)]
        topics = dict.fromkeys(part.topic for part in begun if not self._queues.has_units(part.topic, part.queue_id))
        gone = [topic for topic in topics if not await self._records.has_topic(topic)]
        if gone:
            _log.error("the disk has no room: new queues of %d deleted topics are left out, as %r", len(gone), gone[0])
            await uninterrupted(self._leave_out(gone))
        return bool(gone)

    async def _leave_out(self, topics: list[str]) -> None:
        self._queues.leave_out(self._queues.left_out.union(topics))
        async with self._progress.lock:  # no sync may be at work
            names = [(topic, queue_id) for topic in topics for queue_id in self._queues.queue_ids(topic)]
            empty = [name for name in names if not self._queues.has_units(*name)]
            self._queues.detach_queues(empty)
            await asyncio.to_thread(self._queues.remove_queues, empty)
