# SPDX-License-Identifier: Apache-2.0
"""DelayDelivery: follows the schedule topic and delivers its messages, each delay level on its own.

A level begins with its first message. Levels do not wait for each other. A level whose message the log refuses makes no
progress, reports the reason, and tries again every ten seconds at the latest.
Only a single Indexer of a log may deliver, otherwise messages are delivered twice; for a replicated log the leader's
Indexer delivers.
Callers: the event loop's thread. RocketMQ's counterpart is ScheduleMessageService.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.machine.loop import SupervisedLoop
from services.indexer.engine.deliver.level_delivery import LevelDelivery
from services.indexer.engine.share.delay_offsets import DelayOffsets
from services.indexer.engine.tables.queues import ConsumeQueueTable

LOOK_INTERVAL_MS = 1_000
"""The shortest delay is a second, so a level that is searched at this interval never begins late."""


@dataclass(frozen=True, slots=True)
class DelayStatistics:
    """A snapshot for the telemetry room. Totals are since the start."""

    delivered_total: int
    lost_total: int
    """Messages that were gone from the log before they were delivered."""
    waiting_count: int
    lateness_ms: int
    """Milliseconds since the earliest due message became due."""
    blocked_level_count: int
    """Levels whose last attempt failed."""


class DelayDelivery:
    """The delivery of a store. Create it, `start` it, `stop` it, and save its offsets, each once."""

    def __init__(
        self,
        queues: ConsumeQueueTable,
        offsets: DelayOffsets,
        make_level: Callable[[int], LevelDelivery],
        *,
        look_interval_ms: int,
    ) -> None:
        """`make_level` creates the delivery of the level with this queue id."""
        self.offsets = offsets
        self._queues = queues
        self._levels: dict[int, LevelDelivery] = {}
        self._make_level = make_level
        self._loop = SupervisedLoop("delay levels", self._look, interval_ms=look_interval_ms)

    def start(self) -> None:
        """Begin to deliver."""
        self._loop.start()

    async def stop(self) -> None:
        """End after the current batches. Their progress may have to be saved."""
        await self._loop.stop()
        await asyncio.gather(*(level.stop() for level in self._levels.values()))

    def statistics(self) -> DelayStatistics:
        """Return a snapshot. Quick, and may be called from any thread."""
        levels = list(self._levels.values())
        return DelayStatistics(
            delivered_total=sum(level.delivered_count for level in levels),
            lost_total=sum(level.lost_count for level in levels),
            waiting_count=sum(level.waiting_count for level in levels),
            lateness_ms=max((level.lateness_ms for level in levels), default=0),
            blocked_level_count=sum(level.loop.last_error is not None for level in levels),
        )

    @property
    def last_error(self) -> str:
        """The error of a level that makes no progress. Empty if no level has an error."""
        errors = [level.loop.last_error for level in self._levels.values() if level.loop.last_error is not None]
        return str(errors[0]) if errors else ""

    async def _look(self) -> None:
        """Begin the levels that have their first message, and save the offsets that no level saves."""
        for queue_id in self._queues.queue_ids(SCHEDULE_TOPIC):
            if queue_id not in self._levels:
                self.offsets.begin(queue_id)
                level = self._levels[queue_id] = self._make_level(queue_id)
                level.loop.start()
        await self.offsets.save(is_first=True)
