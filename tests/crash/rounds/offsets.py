# SPDX-License-Identifier: Apache-2.0
"""Offsets: groups that each commit consumer offsets at an Indexer, and the offsets that all Indexers have in the end.

The promise for a commit (docs/replication.md): its Indexer has it when it answers, and the log some `share_interval_ms`
later, so that a lost machine takes its last commits along. So a commit must be known everywhere when all works again,
unless the process that took it was killed; and for ever once that was so. A group that was deleted is gone for ever
once that is answered: then the in-sync set has the record of it. Each group has its own Indexer, because the order of
commits at two of them is not promised, and a call that is not answered is its last: it may be carried out late.
Callers: a single event loop.
"""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from reput.indexer.v1 import consumer_offset_service_pb2 as pb

from tests.crash.rounds.load import TOPICS
from tests.crash.rounds.machine import Machine
from tests.crash.rounds.trio import Trio
from tests.support.patience import LIMIT_S

TOPIC, QUEUE_ID = TOPICS[0], 0
PAUSE_S, LOOK_S = 0.05, 0.1
AGAIN_S = 0.5
UNKNOWN, SILENT = -1, -2
COMMIT_COUNT_MAX = 40
"""Commits of a group."""
COMMIT_TIMEOUT_S, DELETE_TIMEOUT_S = 2.0, 35.0
"""The second is longer than the Indexer asks the log for the same record."""


@dataclass(slots=True)
class Committed:
    """The offsets of a group at an Indexer. Values rise, so the largest value counts."""

    asked: int = 0
    known: int = 0
    """All Indexers had this once."""
    taken: int = 0
    """The offset that a process answered as taken,"""
    ended: "asyncio.Future[int] | None" = None
    """and the exit code of that process."""

    @property
    def owed(self) -> int:
        """The offset that all Indexers must have when all works.

        A process that ended in order has left nothing behind.
        """
        was_killed = self.ended is None or (self.ended.done() and self.ended.result() != 0)
        return self.known if was_killed else max(self.known, self.taken)


class Offsets:
    """The groups of a case."""

    def __init__(self, trio: Trio) -> None:
        self.counts: Counter[str] = Counter()
        self._trio = trio
        self._committed: dict[str, Committed] = {}
        self._deleted: list[str] = []
        """Groups whose deletion was answered."""
        self._numbers = itertools.count(1)
        self._is_over = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Commit for the length of a block. Raises TimeoutError."""
        self._is_over = False
        tasks = [asyncio.create_task(self._commit(machine)) for machine in self._trio.machines.values()]
        try:
            yield
            self._is_over = True
            async with asyncio.timeout(LIMIT_S):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _commit(self, machine: Machine) -> None:
        while not self._is_over:
            group = f"reader-{next(self._numbers)}"
            await self._commit_as(group, machine, self._committed.setdefault(group, Committed()))
            await self._delete(machine, f"gone-{next(self._numbers)}")
            await asyncio.sleep(AGAIN_S)

    async def _commit_as(self, group: str, machine: Machine, committed: Committed) -> None:
        """Commit until a call is not answered, or often enough."""
        for number in range(1, COMMIT_COUNT_MAX):
            child, committed.asked = machine.index, number
            if self._is_over or not await self._is_taken(machine, group, number):
                return
            committed.taken, committed.ended = number, child.ended
            self.counts["commits of consumer offsets answered"] += 1
            await asyncio.sleep(PAUSE_S)

    async def _delete(self, machine: Machine, group: str) -> None:
        """Delete a group that has just committed, once."""
        if await self._is_taken(machine, group, 1):
            request = pb.DeleteConsumerGroupRequest(group=group)
            if await _is_done(machine.reads.offsets.DeleteConsumerGroup(request, timeout=DELETE_TIMEOUT_S)):
                self._deleted.append(group)
                self.counts["deletions of groups answered"] += 1

    async def _is_taken(self, machine: Machine, group: str, queue_offset: int) -> bool:
        offset = pb.ConsumerOffset(topic=TOPIC, queue_id=QUEUE_ID, queue_offset=queue_offset)
        request = pb.CommitConsumerOffsetRequest(group=group, offsets=[offset])
        return await _is_done(machine.reads.offsets.CommitConsumerOffset(request, timeout=COMMIT_TIMEOUT_S))

    async def check(self) -> list[str]:
        """Ask all Indexers, when all is together, until they agree. Returns the faults."""
        wrong: list[str] = []
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    found = await self._ask()
                    wrong = compare(self._committed, self._deleted, found)
                    if not wrong:
                        break
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return wrong or ["no Indexer answers for consumer offsets"]
        for group, committed in self._committed.items():
            committed.known = max([*found[group].values(), 0])
        return []

    async def _ask(self) -> dict[str, dict[str, int]]:
        """The queue offset of each group at each machine: UNKNOWN where it has none, SILENT without an answer."""
        groups = [*self._committed, *self._deleted]
        machines = self._trio.machines.values()
        return {group: {machine.name: await _found(machine, group) for machine in machines} for group in groups}


def compare(
    committed: Mapping[str, Committed], deleted: Iterable[str], found: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Compare each Indexer's offsets of each group with the answers. Returns the faults."""
    wrong = []
    for group, one in committed.items():
        values = set(found[group].values())
        is_known = len(values) == 1 and SILENT not in values and one.owed <= max([*values, 0])
        if not is_known or max(values) > one.asked:
            wrong.append(f"{group} committed {one.owed} (all had {one.known}), and is {found[group]}")
    gone = [group for group in deleted if set(found[group].values()) != {UNKNOWN}]
    return wrong + [f"the deletion of group {group} was answered, and it is {found[group]}" for group in gone]


async def _is_done(call: Any) -> bool:
    """Whether a call is answered."""
    try:
        await call
    except grpc.aio.AioRpcError:
        return False
    return True


async def _found(machine: Machine, group: str) -> int:
    request = pb.GetConsumerOffsetRequest(group=group, topic=TOPIC, queue_id=QUEUE_ID)
    try:
        answer = await machine.reads.offsets.GetConsumerOffset(request, timeout=COMMIT_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        return UNKNOWN if error.code() is grpc.StatusCode.NOT_FOUND else SILENT
    return int(answer.offset.queue_offset)
