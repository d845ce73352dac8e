# SPDX-License-Identifier: Apache-2.0
"""Handover: a leader stops to take appends and waits until a follower has the whole log.

Invariants: after the wait the leader adds no byte, so the next leader has the whole log. If the handover fails, the
leader continues to lead, and no acknowledged append is affected.
A change of topics that was under way at the start of the wait may be missing at the next leader.
Callers: the loop that owns the log.
"""

import asyncio
import contextlib

from msgspec import Struct

from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.replicate.leader import Replicas
from services.commitlog.engine.replicate.stream import ReplicaStream
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.errors import ReplicaBehind

LOOK_S = 0.002


class Handover(Struct, frozen=True):
    """The handover of one open log."""

    _replicas: Replicas
    _gate: WriteGate
    _marks: Marks
    _config: CommitLogConfig

    async def run(self, replica_id: str, leader_target: str) -> int:
        """Refuse appends, naming the next leader, and return the end of the log when that follower has flushed it.

        Also waits for the other members in sync, within the same timeout: appends that wait for their disks get their
        answers. Raises NotLeader and Stopping; and ReplicaBehind, after which the log takes appends again.
        """
        self._gate.check_leads()
        self._check(replica_id)
        self._gate.hand_over(leader_target)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.handover_timeout_ms / 1000):
                    while not (self._has_all(replica_id) and self._is_replicated):
                        self._marks.replicated.hurry(self._marks.wrote.value)
                        self._marks.flushed.hurry(self._marks.wrote.value)
                        self._replicas.wake()
                        await asyncio.sleep(LOOK_S)
            has_all = self._has_all(replica_id)
        except BaseException:
            self.take_back()
            raise
        if not has_all:
            self.take_back()
            reason = f"it did not have all within handover_timeout_ms, {self._config.handover_timeout_ms}"
            raise ReplicaBehind(reason, replica_id=replica_id)
        return self._marks.wrote.value

    def take_back(self) -> None:
        """Accept appends again."""
        self._gate.put(Reason.NOT_LEADER, holds=False)

    def _check(self, replica_id: str) -> ReplicaStream:
        """Return the stream of a member of the in-sync set. Raises ReplicaBehind for any other follower."""
        stream = self._replicas.stream_of(replica_id)
        if stream is None:
            raise ReplicaBehind("it is not connected", replica_id=replica_id)
        if not stream.look().is_in_sync:
            raise ReplicaBehind("it is not in the in-sync set", replica_id=replica_id)
        return stream

    def _has_all(self, replica_id: str) -> bool:
        """Return whether the follower has synced the whole log and has the topics. Raises ReplicaBehind."""
        stream = self._check(replica_id)
        return stream.has_topics and stream.replica.flushed_physical_offset >= self._marks.wrote.value

    @property
    def _is_replicated(self) -> bool:
        return self._marks.replicated.value >= self._marks.wrote.value
