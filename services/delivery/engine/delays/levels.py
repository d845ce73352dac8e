# SPDX-License-Identifier: Apache-2.0
"""DelayLevels: the delivery of all delay levels, each on its own. Levels do not wait for each other.

Callers: the event loop's thread. Memory: 1 MiB and a message for each level whose messages wait.
"""

import asyncio
from collections.abc import Sequence

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
        self.levels = [
            DelayLevel(queue_id, delay_ms, groups, journal, tally, index=index, levels=levels)
            for queue_id, delay_ms in enumerate(delays_ms)
        ]

    def start(self) -> None:
        """Begin to deliver."""
        for level in self.levels:
            level.loop.start()

    async def stop(self) -> None:
        """Stop after the batches that are being written."""
        await asyncio.gather(*(level.loop.stop() for level in self.levels))
