# SPDX-License-Identifier: Apache-2.0
"""RebuildService: starts a rebuild and tells how far it is. The rebuild is the engine's and outlives the call."""

import contextlib
from collections.abc import AsyncGenerator

from reput.indexer.v1 import index_service_pb2
from reput.indexer.v1 import rebuild_service_pb2 as messages

from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.upkeep.online_rebuild import OnlineRebuild, RebuildState


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
                yield _response(state)


def _response(state: RebuildState) -> messages.RebuildIndexesResponse:
    return messages.RebuildIndexesResponse(
        rebuilt_physical_offset=state.rebuilt_physical_offset,
        target_physical_offset=state.target_physical_offset,
        applied_record_count=state.record_count,
        state=index_service_pb2.ReputState.ValueType(state.state),
        error=state.error,
        is_done=state.is_done,
    )
