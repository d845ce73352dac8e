# SPDX-License-Identifier: Apache-2.0
"""SegmentService: protobuf to and from the segment keeper, and the Janitor's verdict on the disk."""

import math
from dataclasses import dataclass

from reput.commitlog.v1 import segment_service_pb2 as pb

from libs.requests.checks import size_of_page
from libs.requests.errors import BadArgument
from libs.requests.page_token import decode_number, encode_token
from libs.runtime.rpc.handlers import Context
from libs.runtime.rpc.timestamps import timestamp
from services.commitlog.engine.keep.disk_guard import DiskGuard
from services.commitlog.engine.keep.segments import Deletion, Refusal, SegmentFacts, SegmentKeeper
from services.commitlog.engine.write.gate import WriteGate

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
LIST = "segments"

_REFUSALS = {
    None: pb.DELETE_REFUSAL_UNSPECIFIED,
    Refusal.ACTIVE: pb.DELETE_REFUSAL_ACTIVE,
    Refusal.NOT_OLDEST: pb.DELETE_REFUSAL_NOT_OLDEST,
    Refusal.NOT_INDEXED: pb.DELETE_REFUSAL_NOT_INDEXED,
    Refusal.UNKNOWN: pb.DELETE_REFUSAL_UNKNOWN,
    Refusal.IN_USE: pb.DELETE_REFUSAL_IN_USE,
}


@dataclass(frozen=True, slots=True, eq=False)
class SegmentServicer:
    """Serves reput.commitlog.v1.SegmentService."""

    _segments: SegmentKeeper
    _disk: DiskGuard
    _gate: WriteGate

    async def ListSegments(self, request: pb.ListSegmentsRequest, context: Context) -> pb.ListSegmentsResponse:
        """Return one page, oldest first."""
        del context
        size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        start = decode_number(LIST, (), request.page_token)
        found = self._segments.list_from(start, size + 1)
        token = encode_token(LIST, (), found[size].base_physical_offset) if len(found) > size else ""
        return pb.ListSegmentsResponse(segments=[_segment(facts) for facts in found[:size]], next_page_token=token)

    async def DeleteSegments(self, request: pb.DeleteSegmentsRequest, context: Context) -> pb.DeleteSegmentsResponse:
        """Delete what may be deleted."""
        del context
        deletions = await self._segments.delete(request.base_physical_offsets, allow_unindexed=request.allow_unindexed)
        return pb.DeleteSegmentsResponse(
            outcomes=[_outcome(deletion) for deletion in deletions],
            min_physical_offset=self._segments.min_physical_offset,
        )

    async def ReportDisk(self, request: pb.ReportDiskRequest, context: Context) -> pb.ReportDiskResponse:
        """Open or close the gate for appends."""
        del context
        ratio = request.used_ratio
        if math.isnan(ratio) or not 0 <= ratio <= 1:
            raise BadArgument("a ratio is from 0 to 1", field="used_ratio", value=ratio, limit=1)
        self._disk.report(is_full=request.is_full, used_ratio=ratio)
        return pb.ReportDiskResponse(is_writable=self._gate.is_open)


def _segment(facts: SegmentFacts) -> pb.Segment:
    return pb.Segment(
        base_physical_offset=facts.base_physical_offset,
        size_bytes=facts.size_bytes,
        wrote_bytes=facts.wrote_bytes,
        first_store_time=timestamp(facts.first_store_time_ms) if facts.first_store_time_ms else None,
        last_store_time=timestamp(facts.last_store_time_ms) if facts.last_store_time_ms else None,
        is_active=facts.is_active,
        is_indexed=facts.is_indexed,
        reader_count=facts.reader_count,
    )


def _outcome(deletion: Deletion) -> pb.DeleteOutcome:
    return pb.DeleteOutcome(
        base_physical_offset=deletion.base_physical_offset,
        is_deleted=deletion.refusal is None,
        refusal=_REFUSALS[deletion.refusal],
        freed_bytes=deletion.freed_bytes,
    )
