# SPDX-License-Identifier: Apache-2.0
"""RebuildService: starts a rebuild and tells how far it is. The rebuild is the engine's and outlives the call."""

import contextlib
from collections.abc import AsyncGenerator

from reput.indexer.v1 import rebuild_service_pb2 as messages

from libs.runtime.rpc.by_name import named
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild


class RebuildServicer:
    """Answers the one call."""

    def __init__(self, rebuild: OnlineRebuild, polls: LongPolls) -> None:
        self._rebuild = rebuild
        self._polls = polls

    async def RebuildIndexes(
        self, _request: messages.RebuildIndexesRequest, _: object
    ) -> AsyncGenerator[messages.RebuildIndexesResponse, None]:
        """Drop everything, build it again, tell how far it is."""
        self._rebuild.begin()
        async with contextlib.aclosing(self._rebuild.watch()) as states:
            async for state in states:
                self._polls.check_open()
                yield named(messages.RebuildIndexesResponse, state, applied_record_count=state.record_count)
