# SPDX-License-Identifier: Apache-2.0
"""OpenTails: the open tails of queues, through which the kernel enters the records of many queues in one walk.

Invariants: only queues with unsynced units have an open tail, so their files stay mapped; a queue that is changed
otherwise, or synced, has its tail closed first.
Callers: the event loop's thread. Decision: docs/decisions/0062-queues-through-open-tails.md.
"""

from collections.abc import Container, Iterable, Sequence

from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel.scan import tails_cy
from libs.kernel.scan.tails_cy import Tail
from libs.machine.failpoints import failpoint
from services.indexer.engine.tables.queue import ConsumeQueue

PlainTails = list[Tail | None]
"""For each queue of a batch: its open tail if all its records continue the tail, None for each other queue."""


class OpenTails:
    """The open tails of a store, none at first."""

    def __init__(self) -> None:
        self.entered_count = 0
        """Records that were entered through tails."""
        self._tails: dict[tuple[str, int], Tail] = {}

    def plain(self, batch: DispatchBatch, without: Container[str]) -> PlainTails:
        """Return the tails of a batch. Changes nothing. Queues of the topics `without` have none."""
        tails = list(map(self._tails.get, batch.queues))
        if without:
            tails = [None if topic in without else tail for (topic, _), tail in zip(batch.queues, tails, strict=True)]
        for index in batch.batch_queues:
            tails[index] = None
        tails_cy.leave_others(tails, batch.queue_indexes.data, batch.queue_offsets.data, batch.physical_offsets.data)
        return tails

    def enter(self, plain: PlainTails, batch: DispatchBatch) -> tuple[int, Sequence[tuple[str, int]]]:
        """Enter the records of the queues with a tail. Returns their number, and the queues.

        No tail may be closed between `plain` and `enter`. An empty `plain` has no queue.
        """
        names = [name for name, tail in zip(batch.queues, plain, strict=bool(plain)) if tail is not None]
        if not names:
            return 0, names
        failpoint("queue.before_append")
        columns = batch.queue_indexes, batch.physical_offsets, batch.record_sizes, batch.tags_codes
        count = tails_cy.enter(plain, *(column.data for column in columns))
        self.entered_count += count
        return count, names

    def open(self, queue: ConsumeQueue) -> None:
        """Open the tail of a queue that was just written to, if its last file has room."""
        if tail := queue.open_tail():
            self._tails[queue.topic, queue.queue_id] = tail

    def close(self, queues: Iterable[ConsumeQueue]) -> None:
        """Close the tails of these queues."""
        for queue in queues:
            self._tails.pop((queue.topic, queue.queue_id), None)
            queue.close_tail()
