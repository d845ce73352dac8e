# SPDX-License-Identifier: Apache-2.0
"""OnlineRebuild: drops all indexes while the service runs, and has them built again from the log.

Invariants: a single rebuild at a time; it belongs to no call, so a call that watches it may be cancelled; calls that
need the indexes are refused from its begin until all records that the log had then are indexed again. A crash in the
middle is an unclean stop without progress: the next start builds all indexes anew, and refuses calls until then.
Callers: the event loop's thread. ReputLoop drops and builds the indexes, between two steps.
"""

import asyncio
from collections.abc import AsyncGenerator

from msgspec import Struct

from libs.machine.clock import Clock
from libs.requests.errors import Stopping
from services.indexer.engine.follow.completeness import UNKNOWN
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.reput_loop import ReputLoop
from services.indexer.engine.follow.reput_state import ReputState, ReputStates
from services.indexer.errors import RebuildRunning

WATCH_INTERVAL_S = 0.5
"""Time between two states that a watching call receives."""


class RebuildState(Struct, frozen=True):
    """The progress of a rebuild. Done means that all is indexed and synced. `error` says why it does not continue."""

    state: ReputState
    is_done: bool
    rebuilt_physical_offset: int
    target_physical_offset: int
    record_count: int
    error: str


class OnlineRebuild:
    """The rebuilds of an Indexer."""

    def __init__(self, indexes: Indexes, states: ReputStates, reput: ReputLoop, flush: FlushLoop, clock: Clock) -> None:
        self._indexes = indexes
        self._states = states
        self._reput = reput
        self._flush = flush
        self._completeness = indexes.completeness
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._started_ms = 0
        self._record_count_before = 0
        self._target_physical_offset = 0

    @property
    def is_running(self) -> bool:
        """Whether the indexes are being built again."""
        return self._task is not None and not self._task.done()

    def begin(self) -> None:
        """Start a rebuild. Raises RebuildRunning, or DependencyUnavailable while the log can't be reached.

        It also restarts a loop that stopped because a record could not be entered.
        """
        if self.is_running:
            raise RebuildRunning(self._started_ms)
        if self._states.log_away is not None:
            raise self._states.log_away
        self._flush.check()
        self._started_ms = self._clock.now_ms()
        self._record_count_before = self._indexes.applied_record_count
        self._target_physical_offset = self._reput.confirmed_physical_offset
        self._states.request_rebuild()
        self._task = asyncio.create_task(self._run(), name="rebuild")

    async def watch(self) -> AsyncGenerator[RebuildState, None]:
        """Yield the state of the rebuild until it ends. Raises its error, except for a record that can't be entered."""
        task = self._task
        assert task is not None
        while not task.done():
            yield self._state()
            await asyncio.wait([task], timeout=WATCH_INTERVAL_S)
        if task.cancelled():
            raise Stopping
        task.result()
        yield self._state()

    async def stop(self) -> None:
        """Stop waiting for the rebuild, because the service stops. The next start continues it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        await self._completeness.changed.wait()
        if self._completeness.is_complete:
            await self._flush.flush(is_thorough=True)

    def _state(self) -> RebuildState:
        target = self._completeness.target_physical_offset
        if target not in (0, UNKNOWN):
            self._target_physical_offset = target
        state = self._states.state
        return RebuildState(
            state=state,
            is_done=not self.is_running and self._completeness.is_complete,
            rebuilt_physical_offset=self._completeness.indexed_physical_offset,
            target_physical_offset=self._target_physical_offset,
            record_count=self._indexes.applied_record_count - self._record_count_before,
            error=self._states.last_error if state in (ReputState.CONNECTING, ReputState.STOPPED) else "",
        )
