# SPDX-License-Identifier: Apache-2.0
"""ReputStates: the stages of the reput loop, as a table: an event leads from a stage to the next stage.

This module alone decides the next stage; the loop, the flush and the callers that request a rebuild report events.
Invariants: an event that the row of a stage lacks changes nothing. So a requested rebuild is not lost, even if other
events happen before all indexes are dropped; only a rebuild ends a stop; a failed sync is final.
Callers: the event loop's thread.
"""

import asyncio
import enum
import logging

from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.errors import OtherLog

_log = logging.getLogger(__name__)


class ReputState(enum.IntEnum):
    """The state that the status shows, with the numbers of the protocol."""

    RECOVERING = 1
    CONNECTING = 2
    CATCHING_UP = 3
    LIVE = 4
    STOPPED = 5
    REBUILDING = 6
    OTHER_LOG = 7


class Stage(enum.Enum):
    """The stage of the loop."""

    RECOVERING = enum.auto()
    """The loop has not begun."""
    CONNECTING = enum.auto()
    """It requests a stream of the log, until the histories agree."""
    CATCHING_UP = enum.auto()
    """It enters records, and the log has more."""
    LIVE = enum.auto()
    """All records of the log are entered."""
    DROPPING = enum.auto()
    """A rebuild was requested: all indexes are dropped before anything else."""
    RECONNECTING = enum.auto()
    """CONNECTING, while the indexes lack records that they held before a rebuild."""
    REBUILDING = enum.auto()
    """CATCHING_UP, while the indexes lack these records."""
    OTHER_LOG = enum.auto()
    """The log is not the indexed log: nothing is entered or dropped, and a stream is requested again."""
    STOPPED = enum.auto()
    """The indexes contradict the log: an operator must decide."""
    FAILED = enum.auto()
    """The content of the disk is unknown: the process ends."""


class Event(enum.Enum):
    """An event that may change the stage."""

    STREAM = enum.auto()
    """A stream is requested, or has ended."""
    LACKING = enum.auto()
    """A step was applied; the indexes lack records that were answered from them."""
    BEHIND = enum.auto()
    """A step was applied; the indexes are complete, and the log has more records."""
    LEVEL = enum.auto()
    """A step was applied; the log has no more records."""
    CONTRADICTED = enum.auto()
    """The log contradicts the indexes."""
    OTHER_LOG = enum.auto()
    """The log has another history than the indexed log."""
    FAILED = enum.auto()
    """A sync failed."""
    REBUILD = enum.auto()
    """A caller requests that all indexes are built anew."""
    DROPPED = enum.auto()
    """All indexes were dropped."""


_STEPS = {Event.LACKING: Stage.CATCHING_UP, Event.BEHIND: Stage.CATCHING_UP, Event.LEVEL: Stage.LIVE}
_REBUILD_STEPS = {Event.LACKING: Stage.REBUILDING, Event.BEHIND: Stage.CATCHING_UP, Event.LEVEL: Stage.LIVE}
_ENDS = {
    Event.CONTRADICTED: Stage.STOPPED,
    Event.OTHER_LOG: Stage.OTHER_LOG,
    Event.FAILED: Stage.FAILED,
    Event.REBUILD: Stage.DROPPING,
}

NEXT: dict[Stage, dict[Event, Stage]] = {
    Stage.RECOVERING: {Event.STREAM: Stage.CONNECTING, **_STEPS, **_ENDS},
    Stage.CONNECTING: {**_STEPS, **_ENDS},
    Stage.CATCHING_UP: {Event.STREAM: Stage.CONNECTING, **_STEPS, **_ENDS},
    Stage.LIVE: {Event.STREAM: Stage.CONNECTING, **_STEPS, **_ENDS},
    Stage.DROPPING: {Event.DROPPED: Stage.RECONNECTING, Event.FAILED: Stage.FAILED},
    Stage.RECONNECTING: {**_REBUILD_STEPS, **_ENDS},
    Stage.REBUILDING: {Event.STREAM: Stage.RECONNECTING, **_REBUILD_STEPS, **_ENDS},
    Stage.OTHER_LOG: {**_STEPS, **_ENDS},
    Stage.STOPPED: {Event.REBUILD: Stage.DROPPING, Event.FAILED: Stage.FAILED},
    Stage.FAILED: {},
}

_SHOWN = {
    Stage.DROPPING: ReputState.CONNECTING,
    Stage.RECONNECTING: ReputState.CONNECTING,
    Stage.FAILED: ReputState.STOPPED,
}
"""The state that the status shows for stages without a state of their own."""


class ReputStates:
    """The stage of an Indexer, and the reason for it."""

    def __init__(self, completeness: Completeness) -> None:
        self.stage = Stage.RECOVERING
        self.last_error = ""
        """The error that ended a stream or stopped the loop; empty after a rebuild was requested."""
        self.log_away: DependencyUnavailable | None = DependencyUnavailable(
            "commitlog", "the Indexer has not reached it yet"
        )
        """The reason why the log is out of reach, as of the last attempt."""
        self.heard = asyncio.Event()
        """Set when the log was heard for the first time and the histories agree, or when the loop has stopped."""
        self._completeness = completeness
        self._resumed = asyncio.Event()

    @property
    def state(self) -> ReputState:
        """The state that the status shows."""
        return _SHOWN.get(self.stage) or ReputState[self.stage.name]

    @property
    def is_following(self) -> bool:
        """Whether the next step of the stream may be applied."""
        return not self.is_stopped and self.stage is not Stage.DROPPING

    @property
    def is_stopped(self) -> bool:
        """Whether the loop does nothing until a rebuild is requested, or until the next start."""
        return self.stage in (Stage.STOPPED, Stage.FAILED)

    @property
    def why_silent(self) -> str:
        """The known reason why the log is not heard. Empty if it is unknown."""
        if self.is_stopped:
            return f"indexing has stopped: {self.last_error}"
        return self.log_away.reason if self.log_away is not None else ""

    def on(self, event: Event) -> None:
        """Change to the stage that follows from the event, if the table has such a stage."""
        self.stage = NEXT[self.stage].get(event, self.stage)

    async def until_wanted(self) -> None:
        """Wait while the loop is stopped."""
        while self.is_stopped:
            self._resumed.clear()
            await self._resumed.wait()

    def lose(self, error: Exception, *, is_expected: bool) -> None:
        """Record that a stream has ended with an error. The next stream may succeed."""
        self.on(Event.STREAM)
        if not self.is_stopped:
            self.log_away = error if isinstance(error, DependencyUnavailable) else None
            self.last_error = str(error) if is_expected else f"{type(error).__name__}: {error}"

    def halt(self, error: Exception, event: Event = Event.CONTRADICTED) -> None:
        """Stop: indexing can't continue. The status shows the reason until a rebuild, or until the next start."""
        self.on(event)
        if self.is_stopped:
            self.last_error = str(error)
            self._completeness.changed.set()
            self.heard.set()
            _log.critical("indexing has stopped, an operator must decide: %s", error)

    def stand_before(self, error: OtherLog) -> None:
        """Record that the log is another log. The next stream may be of the right log."""
        is_news = self.stage is not Stage.OTHER_LOG
        self.on(Event.OTHER_LOG)
        self.last_error, self.log_away = str(error), error
        if is_news and self.stage is Stage.OTHER_LOG:
            self._completeness.lose()
            self.heard.set()
            _log.critical("nothing is indexed or answered, an operator must decide: %s", error)

    def request_rebuild(self) -> None:
        """Have all indexes dropped before the next step, and begin at the log's first byte, also after a halt."""
        self.on(Event.REBUILD)
        if self.stage is Stage.DROPPING:
            self._completeness.lose()
            self.last_error = ""
            self._resumed.set()
