# SPDX-License-Identifier: Apache-2.0
"""Handover: a leader lets one that follows it have all, and takes nothing more.

Invariants: from the end of the wait on no byte is added here, so what the next leader has is all that there is; a
handover that fails leaves the log leading, and nobody was refused anything that was acknowledged.
A change of topics that was under way when the wait began may not be among what the next leader has.
Callers: the loop that owns the log.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.replicate.leader import Replicas
from services.commitlog.engine.replicate.stream import ReplicaStream
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.marks import Marks
from services.commitlog.errors import ReplicaBehind

LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class Handover:
    """Of one open log."""

    _replicas: Replicas
    _gate: WriteGate
    _marks: Marks
    _config: CommitLogConfig

    async def run(self, replica_id: str, leader_target: str) -> int:
        """Refuse appends, naming the next leader, and return the end of the log once that one has synced all of it.

        The others in sync are waited for as well, as long as there is time, because nobody would answer an append that
        waits for their disks. Raises NotLeader and Stopping; and ReplicaBehind, after which the log takes appends as
        before.
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
        """Take appends again."""
        self._gate.put(Reason.NOT_LEADER, holds=False)

    def _check(self, replica_id: str) -> ReplicaStream:
        """Return the stream of a member of the in-sync set. Raises ReplicaBehind unless it is one."""
        stream = self._replicas.stream_of(replica_id)
        if stream is None:
            raise ReplicaBehind("it is not connected", replica_id=replica_id)
        if not stream.look().is_in_sync:
            raise ReplicaBehind("it is not in the in-sync set", replica_id=replica_id)
        return stream

    def _has_all(self, replica_id: str) -> bool:
        """Return whether it has the log on its disk, and the topics. Raises ReplicaBehind."""
        stream = self._check(replica_id)
        return stream.has_topics and stream.replica.flushed_physical_offset >= self._marks.wrote.value

    @property
    def _is_replicated(self) -> bool:
        return self._marks.replicated.value >= self._marks.wrote.value
