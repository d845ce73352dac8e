# SPDX-License-Identifier: Apache-2.0
"""QueueEndReport: reports the ends of the queues after each handshake, so that the log assigns no queue offset twice.

It runs beside the stream, a page at a time, because the first access to a queue after a start opens its files; a log
that does not wait for it is not delayed. A failed report is repeated with the next handshake.
Callers: the event loop's thread; a single report at a time, which ends with its stream.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator

from libs.formats.state.log_history import QueueEnd
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.follow.history import LogHistory
from services.indexer.engine.log.source import LogSource
from services.indexer.engine.tables.queues import ConsumeQueueTable

PAGE_QUEUE_COUNT = 1_024

_log = logging.getLogger(__name__)


class QueueEndReport:
    """The reports of an Indexer."""

    def __init__(self, source: LogSource, queues: ConsumeQueueTable, history: LogHistory) -> None:
        self._source = source
        self._queues = queues
        self._history = history
        self._task: asyncio.Task[None] | None = None

    def begin(self, *, epoch: int, min_physical_offset: int) -> None:
        """Report now, to a log that keeps all records from this offset on."""
        assert self._task is None
        self._task = asyncio.create_task(self._report(epoch, min_physical_offset), name="queue ends")

    @property
    def is_done(self) -> bool:
        """Whether the last report has ended, while its stream continues."""
        return self._task is not None and self._task.done()

    async def stop(self) -> None:
        """Cancel an unfinished report. May be repeated."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def _report(self, epoch: int, min_physical_offset: int) -> None:
        try:
            contradicting_count = await self._source.check_queue_offsets(
                self.pages(min_physical_offset),
                epoch=epoch,
                history_id=self._history.history_id,
                is_complete=self._history.is_complete,
            )
        except DependencyUnavailable as error:
            _log.info("the ends of the queues were not compared with the log: %s", error)
        except Exception:  # noqa: BLE001 - an error here must not end the stream
            _log.exception("the ends of the queues were not compared with the log")
        else:
            if contradicting_count:
                _log.error("%d queues end with a record that the log does not have there", contradicting_count)

    async def pages(self, min_physical_offset: int) -> AsyncGenerator[list[QueueEnd], None]:
        """Yield all queues with their ends, at least a single page."""
        page: list[QueueEnd] = []
        told: set[tuple[str, int]] = set()
        names = [(topic, queue_id) for topic in self._queues.topics() for queue_id in self._queues.queue_ids(topic)]
        for name in names:
            await asyncio.sleep(0)  # other tasks run in between: a queue may have to be read
            end = self._queues.end_of(*name)
            if end is not None:
                told.add(name)
                page.append(end)
            if len(page) == PAGE_QUEUE_COUNT:
                yield page
                page = []
        kept = self._history.kept_below(min_physical_offset)  # now: a queue may have been removed before its turn
        page += [end for end in kept if end.name not in told]
        for start in range(0, len(page) + 1, PAGE_QUEUE_COUNT):
            yield page[start : start + PAGE_QUEUE_COUNT]
