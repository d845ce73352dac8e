# SPDX-License-Identifier: Apache-2.0
"""RebuildService: starts a rebuild and reports its progress. The engine runs the rebuild, which outlives the call."""

import contextlib
from collections.abc import AsyncGenerator

from reput.indexer.v1 import rebuild_service_pb2 as messages

from libs.runtime.rpc.by_name import named
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild


class RebuildServicer:
    """Serves reput.indexer.v1.RebuildService."""

    def __init__(self, rebuild: OnlineRebuild, polls: LongPolls) -> None:
        self._rebuild = rebuild
        self._polls = polls

    async def RebuildIndexes(
        self, _request: messages.RebuildIndexesRequest, _: object
    ) -> AsyncGenerator[messages.RebuildIndexesResponse, None]:
        """Drop all indexes, build them again, and report the progress."""
        self._rebuild.begin()
        async with contextlib.aclosing(self._rebuild.watch()) as states:
            async for state in states:
                self._polls.check_open()
                yield named(messages.RebuildIndexesResponse, state, applied_record_count=state.record_count)
