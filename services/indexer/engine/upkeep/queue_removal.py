# SPDX-License-Identifier: Apache-2.0
"""QueueRemoval: removes queues that are no longer needed, when an operator requests it.

Expired queues: the log has no record of theirs any more. Unused topics: the log does not know the topic any more.
Invariants: the end of a queue is on the disk (LogHistory) before its files are removed, so that the log assigns no
queue offset twice, even if it loses its own queue offsets; progress says that its sums are unknown before the first
file is removed, so a start after a crash in between does not report missing files. A later message begins the queue
anew, at its own queue offset. The log itself, index files and consumer offsets stay; a rebuild brings back the queues
of records that the log still has.
Callers: the event loop's thread. Rules: RocketMQ's cleanExpiredConsumerQueue and cleanUnusedTopic; unlike there, queue
offsets continue, because readers still have their old offsets (decision 0057). Light queues stay.
"""

import asyncio
import logging

import msgspec
from msgspec import Struct

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.log_history import QueueEnd
from libs.formats.state.system_topics import is_system_topic
from libs.machine.failpoints import failpoint
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import Stopping
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.reput_loop import ReputLoop
from services.indexer.engine.log.source import RecordSource

STEP_TOPIC_COUNT = 64
"""Topics whose queues are checked without a pause; indexing waits meanwhile."""

_log = logging.getLogger(__name__)


class RemovedQueues(Struct):
    """The queues that were removed so far, or would be: their ends, and their files and bytes on the disk."""

    ends: list[QueueEnd]
    file_count: int
    freed_bytes: int


class QueueRemoval:
    """The removals of an Indexer."""

    def __init__(
        self,
        reput: ReputLoop,
        indexes: Indexes,
        records: RecordSource,
        flush: FlushLoop,
    ) -> None:
        self.removed_queue_count = 0
        self._reput = reput
        self._indexes = indexes
        self._queues, self._progress, self._history = indexes.queues, indexes.progress, indexes.history
        self._records = records
        self._flush = flush
        self._is_stopping = False

    async def remove_expired(self, *, dry_run: bool) -> RemovedQueues:
        """Remove queues whose last record lies below the log's first byte, except the queues of delayed messages.

        Durable on return. After a crash, a cancelled call or an error some of them remain; a remaining queue may have
        lost its oldest files. Raises Incomplete, Stopping, SyncFailed and OSError.
        """
        topics = [topic for topic in self._queues.topics() if topic != SCHEDULE_TOPIC]
        return await self._remove(topics, are_unused=False, dry_run=dry_run)

    async def remove_unused(self, *, dry_run: bool) -> RemovedQueues:
        """Remove the queues of topics that the log does not know, except the system's.

        As `remove_expired`; raises also DependencyUnavailable, when the log is not available. On a disk without room
        for new records the queues need not be complete: without this removal they might never become complete.
        """
        names = [topic for topic in self._queues.topics() if not is_system_topic(topic)]
        topics = [topic for topic in names if not await self._records.has_topic(topic)]  # no lock is held here
        return await self._remove(topics, are_unused=True, dry_run=dry_run)

    async def stop(self) -> None:
        """End a running removal after its current topics."""
        self._is_stopping = True
        async with self._reput.lock:
            pass

    async def _remove(self, topics: list[str], *, are_unused: bool, dry_run: bool) -> RemovedQueues:
        if not (are_unused and self._reput.is_disk_full):
            self._indexes.completeness.begin()  # an Indexer that reads the log anew knows some of its topics only
        removed = RemovedQueues([], 0, 0)
        for start in range(0, len(topics), STEP_TOPIC_COUNT):
            step = topics[start : start + STEP_TOPIC_COUNT]
            await uninterrupted(self._remove_step(step, removed, are_unused=are_unused, dry_run=dry_run))
        if removed.ends and not dry_run:
            await self._flush.flush(is_thorough=True)
            _log.info("removed %d queues with %d files", len(removed.ends), removed.file_count)
        return removed

    async def _remove_step(self, topics: list[str], removed: RemovedQueues, *, are_unused: bool, dry_run: bool) -> None:
        """Remove queues of some topics between two steps, so that they are gone before a record is entered again."""
        async with self._reput.lock, self._progress.lock:
            self._check_stopping()
            if not (are_unused and self._reput.is_disk_full):
                self._indexes.completeness.begin()
            ends = await self._chosen(topics, are_unused=are_unused)
            file_count, freed_bytes = await asyncio.to_thread(self._queues.size_of, [end.name for end in ends])
            if ends and not dry_run:
                await self._remove_now(ends)
        removed.ends += ends
        removed.file_count += file_count
        removed.freed_bytes += freed_bytes

    async def _chosen(self, topics: list[str], *, are_unused: bool) -> list[QueueEnd]:
        """Return the ends of the queues to remove.

        No record is entered between the log's answer and the removal, so all units are older than the answer.
        """
        ends: list[QueueEnd] = []
        for topic in topics:
            self._check_stopping()
            if are_unused and await self._records.has_topic(topic):
                continue
            for queue_id in self._queues.queue_ids(topic):
                await asyncio.sleep(0)  # other tasks run in between: a queue may have to be read
                end = self._queues.end_of(topic, queue_id)
                if are_unused:
                    ends.append(end or QueueEnd(topic, queue_id, 0, 0))
                elif end is not None and end.last_physical_offset < self._queues.min_physical_offset:
                    ends.append(end)
        return ends

    def _check_stopping(self) -> None:
        if self._is_stopping:
            raise Stopping

    async def _remove_now(self, ends: list[QueueEnd]) -> None:
        """Remove these queues. If the disk fails meanwhile, its content is unknown, and the process ends."""
        self._flush.check()
        names = [end.name for end in ends]
        gone = [end for end in ends if end.end_queue_offset > 0]
        await asyncio.to_thread(self._history.keep, gone, are_all=False)
        await self._progress.save(msgspec.structs.replace(self._progress.value, queue_start_sum=-1, queue_end_sum=-1))
        failpoint("removal.before_remove")
        self._queues.detach_queues(names)
        try:
            await asyncio.to_thread(self._queues.remove_queues, names)
        except OSError as error:
            self._flush.fail(error)
            raise
        failpoint("removal.after_remove")
        self.removed_queue_count += len(names)
