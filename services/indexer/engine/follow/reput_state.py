# SPDX-License-Identifier: Apache-2.0
"""ReputStates: what the reput loop does, as a table: what happens leads from one stage to the next.

All that decides what the loop does next is here; the loop, the flush and whoever wants a rebuild say what happened.
Invariants: an event that the row of a stage lacks changes nothing. So a rebuild that was asked for is not forgotten,
whatever else happens before all is dropped; a stop is left only by a rebuild; a failed sync is the end.
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
    """What others are told; the numbers are those of the protocol."""

    RECOVERING = 1
    CONNECTING = 2
    CATCHING_UP = 3
    LIVE = 4
    STOPPED = 5
    REBUILDING = 6
    OTHER_LOG = 7


class Stage(enum.Enum):
    """What the loop does."""

    RECOVERING = enum.auto()
    """It has not begun."""
    CONNECTING = enum.auto()
    """It asks the log for a stream, until the histories agree."""
    CATCHING_UP = enum.auto()
    """It enters records, and the log has more."""
    LIVE = enum.auto()
    """All that the log has is entered."""
    DROPPING = enum.auto()
    """A rebuild was asked for: all is dropped before anything else."""
    RECONNECTING = enum.auto()
    """CONNECTING, while the indexes lack what they held before a rebuild."""
    REBUILDING = enum.auto()
    """CATCHING_UP, while they lack it."""
    OTHER_LOG = enum.auto()
    """The log that was met is not the one that was indexed: nothing is entered or dropped, and it is asked again."""
    STOPPED = enum.auto()
    """The indexes contradict the log: an operator decides."""
    FAILED = enum.auto()
    """Nobody knows what the disk holds: the process ends."""


class Event(enum.Enum):
    """What happened."""

    STREAM = enum.auto()
    """A stream is asked for, or has ended."""
    LACKING = enum.auto()
    """A step was done; the indexes do not hold all that was answered from them."""
    BEHIND = enum.auto()
    """A step was done; they do, and the log has more."""
    LEVEL = enum.auto()
    """A step was done; the log has no more."""
    CONTRADICTED = enum.auto()
    """The log says what the indexes can't be true beside."""
    OTHER_LOG = enum.auto()
    """The log that was met has another history than the one that was indexed."""
    FAILED = enum.auto()
    """A sync failed."""
    REBUILD = enum.auto()
    """Somebody wants all indexes built anew."""
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
"""What others are told of the stages that they do not know."""


class ReputStates:
    """The stage of one Indexer, and why it is there."""

    def __init__(self, completeness: Completeness) -> None:
        self.stage = Stage.RECOVERING
        self.last_error = ""
        """What a stream ended with, or why the loop stopped; empty after a rebuild was asked for."""
        self.log_away: DependencyUnavailable | None = DependencyUnavailable(
            "commitlog", "the Indexer has not reached it yet"
        )
        """What keeps the log out of reach, as of when it was last asked."""
        self.heard = asyncio.Event()
        """Set when the log was heard for the first time and the histories agree, or the loop has stopped."""
        self._completeness = completeness
        self._resumed = asyncio.Event()

    @property
    def state(self) -> ReputState:
        """What others are told."""
        return _SHOWN.get(self.stage) or ReputState[self.stage.name]

    @property
    def is_following(self) -> bool:
        """Whether the next step of the stream may be done."""
        return not self.is_stopped and self.stage is not Stage.DROPPING

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is done until a rebuild is asked for, or the next start."""
        return self.stage in (Stage.STOPPED, Stage.FAILED)

    @property
    def why_silent(self) -> str:
        """What is known of the reason, where the log is not heard. Empty if nothing is."""
        if self.is_stopped:
            return f"indexing has stopped: {self.last_error}"
        return self.log_away.reason if self.log_away is not None else ""

    def on(self, event: Event) -> None:
        """Go to the stage that follows from what happened, if there is one."""
        self.stage = NEXT[self.stage].get(event, self.stage)

    async def until_wanted(self) -> None:
        """Wait while nothing is to be done because the loop has stopped."""
        while self.is_stopped:
            self._resumed.clear()
            await self._resumed.wait()

    def lose(self, error: Exception, *, is_expected: bool) -> None:
        """Note that a stream has ended with an error. The next one may be better."""
        self.on(Event.STREAM)
        if not self.is_stopped:
            self.log_away = error if isinstance(error, DependencyUnavailable) else None
            self.last_error = str(error) if is_expected else f"{type(error).__name__}: {error}"

    def halt(self, error: Exception, event: Event = Event.CONTRADICTED) -> None:
        """Stop: the indexes can't go on. The reason shows in the status until a rebuild, or the next start."""
        self.on(event)
        if self.is_stopped:
            self.last_error = str(error)
            self._completeness.changed.set()
            self.heard.set()
            _log.critical("indexing has stopped, an operator must decide: %s", error)

    def stand_before(self, error: OtherLog) -> None:
        """Note that the log which was met is another one. The next stream may be that of the right one."""
        is_news = self.stage is not Stage.OTHER_LOG
        self.on(Event.OTHER_LOG)
        self.last_error, self.log_away = str(error), error
        if is_news and self.stage is Stage.OTHER_LOG:
            self._completeness.lose()
            self.heard.set()
            _log.critical("nothing is indexed or answered, an operator must decide: %s", error)

    def request_rebuild(self) -> None:
        """Drop all indexes before the next step and begin at the log's first byte, also after a halt."""
        self.on(Event.REBUILD)
        if self.stage is Stage.DROPPING:
            self._completeness.lose()
            self.last_error = ""
            self._resumed.set()
