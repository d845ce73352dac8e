# SPDX-License-Identifier: Apache-2.0
"""OpenLog: an open log with all its parts. Each part is created once, after the parts that it needs."""

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

from libs.formats.limits import INT64_MAX
from libs.formats.records.host import Host
from libs.log.log_clock import LogClock
from libs.log.state.topic_store import SAVE_INTERVAL_MS
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.loop import SupervisedLoop
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.durable.acknowledge import Acknowledgements
from services.commitlog.engine.durable.syncer import Syncer
from services.commitlog.engine.durable.topic_changes import TopicChanges
from services.commitlog.engine.follow.backup_state import BackupStates
from services.commitlog.engine.follow.followers import Followers
from services.commitlog.engine.follow.other_histories import OtherHistories
from services.commitlog.engine.follow.queue_offset_check import QueueOffsetCheck
from services.commitlog.engine.follow.reader import RecordReader
from services.commitlog.engine.keep.checkpoint import CheckpointKeeper
from services.commitlog.engine.keep.disk_guard import DiskGuard
from services.commitlog.engine.keep.queue_snapshot import SnapshotKeeper
from services.commitlog.engine.keep.segments import SegmentKeeper
from services.commitlog.engine.keep.store_time import StoreTimeWatch
from services.commitlog.engine.replicate.applier import Applier
from services.commitlog.engine.replicate.follower import Follower
from services.commitlog.engine.replicate.handover import Handover
from services.commitlog.engine.replicate.in_sync_keeper import InSyncKeeper
from services.commitlog.engine.replicate.leader import Replicas
from services.commitlog.engine.replicate.ledger import BY_HAND, ElectedTerm, InSyncFileLedger
from services.commitlog.engine.replicate.steps import LeaderAt
from services.commitlog.engine.start.opening import RecoveredStore
from services.commitlog.engine.write.append import AppendPipeline
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.groups import AppendGroups
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.seal import Seal
from services.commitlog.engine.write.tail import LogTailWriter


class ReplicaState(NamedTuple):
    """The position of a log among its copies."""

    is_follower: bool
    """Whether it follows a leader, so it accepts no appends."""
    is_replicated: bool
    """Whether it has copies, or is a copy."""


class OpenLog:
    """The parts of an open log, which are never replaced. Nothing runs by itself before the loops are started."""

    def __init__(
        self,
        store: RecoveredStore,
        fs: Fs,
        config: CommitLogConfig,
        clock: Clock,
        *,
        listen_host: Host,
        on_failure: Callable[[BaseException], None],
        leader: LeaderAt | None = None,
        term: ElectedTerm = BY_HAND,
    ) -> None:
        """Build all parts of a recovered store. Touches no file.

        `listen_host` is the store host of records unless the configuration has another. A follower follows `leader`.
        `on_failure` is called with the failure that seals the log.
        """
        self.store_host: Final = Host.parse(config.store_host) if config.store_host else listen_host
        self.small_files: Final = store.small_files
        self.identity: Final = store.identity
        directories, self.recovery = store.directories, store.recovery
        self.files: Final = store.files
        self.chain: Final = store.chain
        self.epochs: Final = store.epochs
        self.topics: Final = store.topics
        self.state: Final = store.state
        self.gate: Final = WriteGate(term.check)
        self.gate.put(Reason.QUEUE_OFFSETS_UNKNOWN, holds=store.recovery.are_queue_offsets_unknown)
        known = self.identity.known(store.checkpoint.confirmed_physical_offset)
        self.marks: Final = Marks.of(self.chain, config, *known)
        self.seal: Final = Seal(self.gate, self.marks.failing, self.chain.directory, on_failure)
        self.tail: Final = LogTailWriter(self.chain, self.state, self.marks, self.gate, self.seal)
        host = self.store_host.to_bytes()
        log_clock = LogClock(clock, self.state.last_store_time_ms)
        self.pipeline: Final = AppendPipeline(self.tail, self.state, self.topics, self.gate, log_clock, config, host)
        self.committer: Final = Syncer.committer(self.chain, self.marks, self.state, self.seal, clock, config)
        self.flusher: Final = Syncer.flusher(self.chain, self.marks, self.state, self.seal, clock, config)
        ledger = term.ledger or InSyncFileLedger(
            fs, self.identity, self.epochs, self.small_files, config, store.in_sync
        )
        self.in_sync: Final = None if leader else InSyncKeeper(
            ledger, self.identity, self.epochs, self.marks, self.pipeline, self.topics, clock, config
        )  # fmt: skip
        self.acknowledgements: Final = Acknowledgements(self.marks, config, self._is_shared, term.check)
        self.disk: Final = DiskGuard(fs, clock, config, directories, self.gate, self.small_files)
        self.store_time: Final = StoreTimeWatch(log_clock, self.state, ahead_ms_max=config.store_time_ahead_ms_max)
        self.checkpoint: Final = CheckpointKeeper(
            fs, clock, config, store.checkpoint, self.flusher, self.marks, self.seal, self.store_time,
            self.small_files, self.identity,
            store.checkpoint.consume_queue_time_ms if self.files.is_owed else INT64_MAX,
        )  # fmt: skip
        self.checkpoint.note_start(self.chain.min_physical_offset)
        self.snapshot: Final = SnapshotKeeper(
            fs, self.chain, self.state, self.marks, self.gate, self.small_files, config,
            store.recovery.snapshot_physical_offset,
        )  # fmt: skip
        self.segments: Final = SegmentKeeper(
            fs, self.chain, directories, self.epochs, self.checkpoint, self.snapshot, self.small_files, clock, config
        )
        self.reader: Final = RecordReader(self.chain, self.marks.visible)
        self.followers: Final = Followers(self.chain, self.epochs, self.marks, self.reader, self.checkpoint, config)
        scanned = self.followers.scanned
        parts = self.chain, self.epochs, self.marks, self.topics, self.snapshot, self.gate, self.in_sync
        self.replicas: Final = Replicas(fs, *parts, clock, config, term.promises)
        self.handover: Final = None if leader else Handover(self.replicas, self.gate, self.marks, config)
        applier = Applier(self.chain, self.tail, self.state, self.epochs, self.small_files, self.gate, scanned)
        self.follower: Final = None if leader is None else Follower(
            leader, applier, self.chain, self.state, self.marks, self.epochs, self.topics, self.gate, self.checkpoint,
            self.identity, self.small_files, clock, config,
        )  # fmt: skip

    # Parts for calls alone, which no other part uses.

    @cached_property
    def groups(self) -> AppendGroups:
        """The groups of small appends."""
        return AppendGroups(self.pipeline)

    @cached_property
    def backup_states(self) -> BackupStates:
        """The states that backups take."""
        return BackupStates(self.chain, self.epochs, self.marks, self.topics, self.snapshot)

    @cached_property
    def queue_offsets(self) -> QueueOffsetCheck:
        """The check of the Indexer's queues against the log's next queue offsets."""
        return QueueOffsetCheck(self.chain, self.state, self.gate)

    @cached_property
    def other_histories(self) -> OtherHistories:
        """The check of the histories that followers report."""
        return OtherHistories(self.epochs, self.marks, self.gate)

    @cached_property
    def topic_changes(self) -> TopicChanges:
        """The topic changes of a leader."""
        return TopicChanges(self.topics, self.in_sync, self.replicas.wake, self.gate.check_told)

    @cached_property
    def topic_saving(self) -> SupervisedLoop:
        """The loop that writes topics.json."""
        store = self.topics.store
        return SupervisedLoop("topics", store.save, interval_ms=SAVE_INTERVAL_MS, wakes=store.is_due)

    @property
    def keepers(self) -> tuple[SupervisedLoop, ...]:
        """Loops that follow a leader or track the followers, write small files and check the disk."""
        side = self.follower or self.in_sync
        assert side is not None
        return side.loop, self.disk.loop, self.checkpoint.loop, self.snapshot.loop, self.topic_saving

    @property
    def syncers(self) -> tuple[SupervisedLoop, ...]:
        """Loops that make the log durable. Without a pool there is nothing to commit."""
        has_pool = self.marks.committed is not self.marks.wrote
        return (self.committer.loop, self.flusher.loop) if has_pool else (self.flusher.loop,)

    @property
    def replicated_physical_offset(self) -> int:
        """End of the bytes on the disks of all members of the in-sync set. A follower learns it from its leader."""
        return (self.identity if self.in_sync is None else self.in_sync).replicated_physical_offset

    @property
    def replica_state(self) -> ReplicaState:
        """Whether the log is a follower, and whether it has copies or is a copy."""
        is_follower = self.follower is not None
        is_replicated = is_follower or self._is_shared() or bool(self.replicas.connected)
        return ReplicaState(is_follower, is_replicated)

    def _is_shared(self) -> bool:
        return self.in_sync is not None and self.in_sync.set.size > 1

    async def abandon(self) -> None:
        """Stop all loops and threads without the last steps of a stop. The files stay as after a killed process."""
        for loop in (*self.keepers, *self.syncers):
            await loop.stop()
        await self.topics.finish()
        for thread in (self.committer, self.flusher, self.small_files):
            await thread.end()
