# SPDX-License-Identifier: Apache-2.0
"""DelayLevels: the delivery of all delay levels, each on its own. Levels do not wait for each other.

Callers: the event loop's thread. Memory: 1 MiB and a message for each level whose messages wait.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.requests.errors import TopicNotFound
from services.delivery.engine.delays.level import DelayLevel
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.levels import LevelIndex
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.tally import Tally


class DelayLevels:
    """The delay levels of an ownership, from level 1 on. `start` them; `stop` them in the end."""

    def __init__(
        self,
        delays_ms: Sequence[int],
        groups: Groups,
        journal: Journal,
        tally: Tally,
        *,
        index: Index,
        levels: LevelIndex,
    ) -> None:
        self._index = index
        self.levels = [
            DelayLevel(queue_id, delay_ms, groups, journal, tally, index=index, levels=levels)
            for queue_id, delay_ms in enumerate(delays_ms)
        ]

    async def run_maintenance(self) -> None:
        """Look how many messages wait: a level does not read on while its next message is not due.

        Raises DependencyUnavailable.
        """
        waiting = [level for level in self.levels if level.waiting_count]
        if not waiting:
            return
        with contextlib.suppress(TopicNotFound):  # the index is built again
            bounds = await self._index.bounds(SCHEDULE_TOPIC)
            for level in waiting:
                _, level.end = bounds.get(level.place.queue_id, (0, level.end))

    def start(self) -> None:
        """Begin to deliver."""
        for level in self.levels:
            level.loop.start()

    async def stop(self) -> None:
        """Stop after the batches that are being written."""
        await asyncio.gather(*(level.loop.stop() for level in self.levels))
