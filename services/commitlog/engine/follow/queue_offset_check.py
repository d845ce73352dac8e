# SPDX-License-Identifier: Apache-2.0
"""QueueOffsetCheck: compares the next queue offset of each queue with the end that an Indexer has for it.

A queue offset that is assigned twice makes a message unreachable, so a next offset that is too low is raised,
logged and counted. It can be too low only when the snapshot is lost and the queue's records are gone from the log. So
an end is accepted without its record only while the offsets are unknown, and only for a queue without a record in the
log. Any other end that the log can't confirm by its last record is an error of the Indexer: it is logged and counted,
and the next offset stays, because a message behind a gap would have no place in its queue. An end that a record
confirms belongs to an older generation of a queue that began again; an Indexer that is behind still has it. It changes
nothing.
Appends wait until the first complete comparison if a start could not find all offsets (`WriteGate`).
Callers: the loop that owns the log, which also runs other tasks during a comparison. RocketMQ has no such check: it
trusts the queues' ends.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

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
"""Queues that are compared without a pause: each may cost the checksum of a large record."""
TOLD_COUNT_MAX = 10
"""Most queues of a page with a log line each. The statistics count all queues."""
QUEUE_OFFSET_MAX = INT64_MAX // 20
"""A unit of a consume queue has 20 bytes, and RocketMQ counts them in 64 bits."""

_log = logging.getLogger(__name__)


class QueueEnd(Struct, frozen=True):
    """The end of a queue in the indexes. `last_physical_offset` is the begin of its last record."""

    topic: str
    queue_id: int
    end_queue_offset: int
    last_physical_offset: int


class QueueVerdict(Struct):
    """The numbers of raised queues and of queues that contradict the log."""

    raised_count: int = 0
    contradicting_count: int = 0


@dataclass(slots=True, eq=False)
class QueueOffsetCheck:
    """The comparison of an Indexer's queue ends with the state of a log."""

    _chain: SegmentChain
    _state: LogState
    _gate: WriteGate
    raised_count: int = 0
    contradicting_count: int = 0

    @property
    def _are_unknown(self) -> bool:
        return self._gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN)

    async def compare(self, ends: Sequence[QueueEnd]) -> QueueVerdict:
        """Compare a page. Raises BadArgument before anything of the page is compared."""
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
        """Compare a queue, and count the outcome. Skips a queue that accepts no appends."""
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
        """End a comparison after all its pages. A complete comparison lets appends in."""
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
        """Return whether the log contradicts this end. Its own offset is exact unless the end's last record exists."""
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
