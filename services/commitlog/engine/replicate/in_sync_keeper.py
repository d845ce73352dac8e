# SPDX-License-Identifier: Apache-2.0
"""InSyncKeeper: maintains the in-sync set of a leader: its record, the replicated offset, refusals of appends.

Invariants: a change is effective only after it is recorded. Appends and changes of topics that cannot reach the
requested durability are refused before anything is written.
Callers: the loop that owns the log. InSyncSet has the rules, InSyncLedger the record.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial

from libs.formats.state.replication import Member
from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import NotDurableYet, ServiceError
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.identity import Identity
from services.commitlog.engine.replicate.in_sync_set import InSyncSet, LagLimits
from services.commitlog.engine.replicate.ledger import InSync, InSyncLedger
from services.commitlog.engine.write.append import AppendPipeline
from services.commitlog.engine.write.marks import DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED, DURABILITY_STORE, Marks
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import NotEnoughReplicas

LOOK_MS = 500
REPLICATED_COUNT_MIN = 2
"""Least size of the set for REPLICATED: the leader and one follower."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class InSyncKeeper:
    """The keeper of one leader."""

    _ledger: InSyncLedger
    _identity: Identity
    _epochs: EpochHistory
    _marks: Marks
    _pipeline: AppendPipeline
    _topics: TopicRegistry
    _clock: Clock
    _config: CommitLogConfig
    set: InSyncSet = field(init=False)
    change_count: int = 0
    lag_ms: int = 0
    """Lag of the slowest member of the set at the last look."""
    loop: SupervisedLoop = field(init=False)
    _is_watching: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when another member may have the topics."""

    def __post_init__(self) -> None:
        config, recorded = self._config, self._ledger.load()
        self.set = InSyncSet(
            recorded.others,
            min_in_sync=recorded.min_in_sync,
            min_in_sync_setting=config.min_in_sync_replicas,
            limits=LagLimits(config.replica_lag_ms_max, config.replica_lag_bytes_max),
            epoch_start_physical_offset=self._epochs.epochs[-1].start_physical_offset,
            now_ms=self._now_ms(),
            topics_change_count=self._topics.change_count,
        )
        self.loop = SupervisedLoop("in-sync set", self._look, interval_ms=LOOK_MS, expected_errors=(ServiceError,))
        self._tell()

    @property
    def store_id(self) -> str:
        """Id of this log's data directory, empty before the first follower."""
        return self._identity.store_id

    @property
    def replica_ids(self) -> list[str]:
        """Members of the set, this log first."""
        return [self._config.replica_id, *sorted(member.replica_id for member in self.set.others)]

    @property
    def needed_count(self) -> int:
        """Number of members that must be connected, leader included: the set's minimum, or sync_master's setting."""
        is_synchronous = self._marks.visible is self._marks.replicated
        return max(self.set.min_in_sync, self._config.min_in_sync_replicas if is_synchronous else 1)

    @property
    def replicated_physical_offset(self) -> int:
        """Offset up to which all members of the set have flushed."""
        return max(self._marks.replicated.value, self.set.replicated(self._marks.flushed.value))

    @property
    def shared_physical_offset(self) -> int:
        """Offset up to which at least two members had flushed the log at some time."""
        return self._identity.replicated_physical_offset

    def join(self, member: Member, flushed_physical_offset: int) -> None:
        """Record that a member is connected."""
        self.set.join(member, flushed_physical_offset, self._now_ms())
        self._tell()
        self.watch()
        self.loop.wake()

    def hear(self, member: Member, flushed_physical_offset: int, topics_change_count: int) -> None:
        """Record which part of the log and which topics a member has on its disk."""
        self.set.hear(member, flushed_physical_offset)
        self.set.hear_topics(member, topics_change_count)
        self._news.set()
        self._advance()
        if member not in self.set.others:
            self.loop.wake()

    def let_go(self, member: Member) -> None:
        """Record that a connected member stops in order, and update the set at once."""
        self.set.let_go(member)
        self.loop.wake()

    def leave(self, member: Member) -> None:
        """Record a disconnect."""
        self.set.leave(member, self._now_ms())
        self._tell()
        self.loop.wake()

    def check_enough(self) -> None:
        """Raise NotEnoughReplicas if a batch with the store's default durability would be refused for it."""
        live_count, needed = self.set.live_count, self._config.min_in_sync_replicas
        if self._marks.is_replicated_at_once and live_count < needed:
            raise NotEnoughReplicas(in_sync=live_count, needed=needed)

    async def wait_topics(self, change_count: int) -> None:
        """Wait until the in-sync set has the topics as of this change count. Raises NotDurableYet.

        Only a sync_master waits; with an async_master the members get the topics later.
        """
        if not self._marks.is_replicated_at_once:
            return
        try:
            async with asyncio.timeout(self._config.replicate_timeout_ms / 1000):
                while not self.set.has_topics(change_count):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise NotDurableYet("the change of topics", durability=DURABILITY_LOCAL_DISK) from None

    def watch(self) -> None:
        """Start to observe the flushed offset of this log, once."""
        if not self._is_watching:
            self._is_watching = True
            self._own_moved()

    def _own_moved(self, _: object = None) -> None:
        """Update the replicated offset. Observe further while members or readers depend on it."""
        self._advance()
        flushed, marks = self._marks.flushed, self._marks
        self._is_watching = marks.visible is marks.replicated or not self.set.is_alone
        if self._is_watching:
            flushed.reached(flushed.value + 1).add_done_callback(self._own_moved)

    def _advance(self) -> None:
        self._marks.replicated.advance(self.set.replicated(self._marks.flushed.value))
        if self.set.size >= REPLICATED_COUNT_MIN:
            self._identity.note_replicated(self._marks.replicated.value)

    async def _look(self) -> None:
        """Record the proposed set, if it differs from the recorded set."""
        end, replicated = self._marks.committed.value, self.replicated_physical_offset
        proposed = self.set.look(replicated, end, self._now_ms())
        self.lag_ms = self.set.lag_ms(self._now_ms())
        self._advance()
        if proposed is None:
            return
        min_in_sync = self.set.min_in_sync_with(proposed)
        await self._ledger.record(InSync(proposed, min_in_sync, self.replicated_physical_offset))
        self.set.decide(min_in_sync)
        self._news.set()
        self.change_count += 1
        self._advance()
        self._tell()
        _log.info("in sync from %d on: %s", self._marks.replicated.value, ", ".join(self.replica_ids))

    def _tell(self) -> None:
        """Refuse appends that need more members than are connected."""
        live_count, min_in_sync = self.set.live_count, self._config.min_in_sync_replicas
        needed = {DURABILITY_REPLICATED: max(min_in_sync, REPLICATED_COUNT_MIN)}
        if self._marks.visible is self._marks.replicated:
            needed[DURABILITY_STORE] = min_in_sync
        short = {durability for durability, count in needed.items() if live_count < count}
        refusal = partial(NotEnoughReplicas, in_sync=live_count, needed=needed[DURABILITY_REPLICATED])
        self._pipeline.refuse_durabilities(short, refusal)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)
