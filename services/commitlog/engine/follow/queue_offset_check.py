# SPDX-License-Identifier: Apache-2.0
"""QueueOffsetCheck: compares the next queue offset of each queue with the end that an Indexer has for it.

A queue offset that is given twice makes one of two messages unreachable, so a number that is too low is raised, logged
and counted. It can be too low only when the snapshot is lost and the queue's records are gone from the log: so an end
is believed without its record only while the numbers are unknown, and only of a queue that the log has no record of.
Any other end that the log can't confirm by its last record is the Indexer's fault: it is logged and counted, and the
number stays, because a message behind a gap would have no place in its queue. An end that a record confirms is that of
an older generation of a queue that began again, which an Indexer that is behind still has: nothing follows from it.
Appends wait until the first complete comparison if a start could not know all numbers (`WriteGate`).
Callers: the loop that owns the log, which runs in between. RocketMQ has no such check: it takes the queues' ends for
the truth.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from libs.formats.errors import FormatError
from libs.formats.limits import INT32_MAX, INT64_MAX, QUEUE_ID_MAX, STORED_TOPIC_SIZE_BYTES_MAX, TOPIC_SIZE_BYTES_MAX
from libs.formats.records import record
from libs.kernel.scan import scan_cy
from libs.machine.loop import in_steps
from libs.requests.errors import BadArgument
from libs.segments.chain import SegmentChain
from services.commitlog.engine.write.gate import Reason, WriteGate
from services.commitlog.engine.write.state import LogState

QUEUE_END_COUNT_MAX = 4_096
"""Most queues in one page."""
STEP_QUEUE_COUNT = 8
"""Queues that are compared in one go: each may cost the checksum of a large record."""
TOLD_COUNT_MAX = 10
"""Most queues of a page that have a line in the log each; the statistics count all of them."""
QUEUE_OFFSET_MAX = INT64_MAX // 20
"""A unit of a consume queue has 20 bytes, and RocketMQ counts them in 64 bits."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """Where a queue ends in the indexes; `last_physical_offset` is where its last record begins."""

    topic: str
    queue_id: int
    end_queue_offset: int
    last_physical_offset: int


@dataclass(slots=True)
class QueueVerdict:
    """How many queues were raised, and how many contradict the log."""

    raised_count: int = 0
    contradicting_count: int = 0


@dataclass(slots=True, eq=False)
class QueueOffsetCheck:
    """Comparisons with the state of one log."""

    _chain: SegmentChain
    _state: LogState
    _gate: WriteGate
    raised_count: int = 0
    contradicting_count: int = 0

    @property
    def _are_unknown(self) -> bool:
        return self._gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN)

    async def compare(self, ends: Sequence[QueueEnd]) -> QueueVerdict:
        """Compare one page. Raises BadArgument, and then nothing of the page was compared."""
        if len(ends) > QUEUE_END_COUNT_MAX:
            raise BadArgument("too many queues", field="queues", value=len(ends), limit=QUEUE_END_COUNT_MAX)
        async for step in in_steps(enumerate(ends)):
            for index, end in step:
                _check(end, f"queues[{index}]")
        verdict = QueueVerdict()
        async for found in in_steps(ends, count=STEP_QUEUE_COUNT):
            for end in found:
                self._compare(end, verdict)
        if max(verdict.raised_count, verdict.contradicting_count) > TOLD_COUNT_MAX:
            _log.warning(
                "of this page %d queues were raised and %d contradict the log; the lines above name %d of each at most",
                verdict.raised_count,
                verdict.contradicting_count,
                TOLD_COUNT_MAX,
            )
        self.raised_count += verdict.raised_count
        self.contradicting_count += verdict.contradicting_count
        return verdict

    def _compare(self, end: QueueEnd, verdict: QueueVerdict) -> None:
        """Compare one queue, and count what came of it. Passes over a queue that nobody can append to."""
        topic, table = end.topic.encode(), self._state.table
        if end.queue_id > QUEUE_ID_MAX or len(topic) > TOPIC_SIZE_BYTES_MAX:
            return
        known = table.next_queue_offset(topic, end.queue_id)
        if end.end_queue_offset <= known:
            return
        if self._contradicts(end, known):
            verdict.contradicting_count += 1
            if verdict.contradicting_count <= TOLD_COUNT_MAX:
                _log.error(
                    "the Indexer's queue %r/%d ends at %d, but the log has no record at physical offset %d that is its "
                    "last one: the indexes are wrong and must be rebuilt; the log goes on at %d",
                    end.topic,
                    end.queue_id,
                    end.end_queue_offset,
                    end.last_physical_offset,
                    known,
                )
        elif not known and self._are_unknown:
            table.set_next_queue_offset(topic, end.queue_id, end.end_queue_offset)
            verdict.raised_count += 1
            if verdict.raised_count <= TOLD_COUNT_MAX:
                _log.warning(
                    "queue %r/%d goes on at queue offset %d, which the Indexer knows, and not at 0",
                    end.topic,
                    end.queue_id,
                    end.end_queue_offset,
                )

    def finish(self, *, is_complete: bool) -> None:
        """End a comparison, all pages of which were compared. A complete one lets appends in."""
        if not self._are_unknown:
            return
        if is_complete:
            self._gate.put(Reason.QUEUE_OFFSETS_UNKNOWN, holds=False)
            _log.warning("the queue offsets are known now, from the Indexer: appends are accepted")
            self._state.is_worth_saving.set()
        else:
            _log.error(
                "the Indexer does not know what the log had below %d either: appends wait for one that does, or for a "
                "start with accept_scanned_queue_offsets",
                self._chain.min_physical_offset,
            )

    def _contradicts(self, end: QueueEnd, known: int) -> bool:
        """Return whether the log knows better. Its own number is exact, unless that very record is its last one."""
        if end.last_physical_offset < self._chain.min_physical_offset:
            return known > 0 or not self._are_unknown
        if end.last_physical_offset >= self._chain.max_physical_offset:
            return True
        segment = self._chain.find(end.last_physical_offset)
        position = end.last_physical_offset - segment.base_physical_offset
        size = scan_cy.check_record(
            segment.buffer, position, segment.wrote_position, segment.base_physical_offset, True
        )
        if size <= 0:
            return True
        try:
            found = record.decode(segment.buffer, position)
        except FormatError:
            return True
        expected = (end.topic, end.queue_id, end.end_queue_offset - 1)
        return (found.topic, found.queue_id, found.queue_offset) != expected


def _check(end: QueueEnd, field: str) -> None:
    size = len(end.topic.encode())
    if not 0 < size <= STORED_TOPIC_SIZE_BYTES_MAX:
        raise BadArgument("no topic", field=f"{field}.topic", value=size, limit=STORED_TOPIC_SIZE_BYTES_MAX)
    for name, value, limit in (
        ("queue_id", end.queue_id, INT32_MAX),
        ("end_queue_offset", end.end_queue_offset, QUEUE_OFFSET_MAX),
        ("last_physical_offset", end.last_physical_offset, INT64_MAX),
    ):
        if not 0 <= value <= limit:
            raise BadArgument("the value is out of range", field=f"{field}.{name}", value=value, limit=limit)
