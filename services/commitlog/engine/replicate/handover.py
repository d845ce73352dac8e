# SPDX-License-Identifier: Apache-2.0
"""Handover: a leader lets one that follows it have all, and takes nothing more.

Invariants: from the end of the wait on no byte is added here, so what the next leader has is all that there is; a
handover that fails leaves the log leading, and nobody was refused anything that was acknowledged.
Callers: the loop that owns the log.
"""

import asyncio
from dataclasses import dataclass

from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.replicate.leader import Replicas
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

        Raises NotLeader and Stopping; and ReplicaBehind, after which the log takes appends as before.
        """
        self._gate.check_leads()
        self._check(replica_id)
        self._gate.hand_over(leader_target)
        try:
            async with asyncio.timeout(self._config.handover_timeout_ms / 1000):
                while self._check(replica_id) < self._marks.wrote.value:
                    self._marks.replicated.hurry(self._marks.wrote.value)
                    self._marks.flushed.hurry(self._marks.wrote.value)
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            reason = f"it did not have all within handover_timeout_ms, {self._config.handover_timeout_ms}"
            raise self._given_up(ReplicaBehind(reason, replica_id=replica_id)) from None
        except BaseException as error:
            raise self._given_up(error) from error
        return self._marks.wrote.value

    def _check(self, replica_id: str) -> int:
        """Return what a member of the in-sync set has synced. Raises ReplicaBehind unless it is one."""
        for replica in self._replicas.connected:
            if replica.replica_id == replica_id:
                if not replica.is_in_sync:
                    raise ReplicaBehind("it is not in the in-sync set", replica_id=replica_id)
                return replica.flushed_physical_offset
        raise ReplicaBehind("it is not connected", replica_id=replica_id)

    def _given_up(self, error: BaseException) -> BaseException:
        self._gate.put(Reason.NOT_LEADER, holds=False)
        return error
