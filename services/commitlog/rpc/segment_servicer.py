# SPDX-License-Identifier: Apache-2.0
"""SegmentService: protobuf to and from the segment keeper, and the Janitor's reports on the disk."""

import math
from collections.abc import Callable

from msgspec import Struct
from reput.commitlog.v1 import segment_service_pb2 as pb

from libs.requests.checks import size_of_page
from libs.requests.errors import BadArgument
from libs.requests.page_token import decode_number, encode_token
from libs.runtime.rpc.by_name import named
from libs.runtime.rpc.timestamps import timestamp
from services.commitlog.engine.keep.segments import Deletion, SegmentFacts
from services.commitlog.engine.open_log import OpenLog

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
LIST = "segments"


class SegmentServicer(Struct, frozen=True, eq=False):
    """The servicer of reput.commitlog.v1.SegmentService."""

    _log: Callable[[], OpenLog]

    async def ListSegments(self, request: pb.ListSegmentsRequest, _: object) -> pb.ListSegmentsResponse:
        """Return a page of segments, oldest first."""
        size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        start = decode_number(LIST, (), request.page_token)
        found = self._log().segments.list_from(start, size + 1)
        token = encode_token(LIST, (), found[size].base_physical_offset) if len(found) > size else ""
        return pb.ListSegmentsResponse(segments=[_segment(facts) for facts in found[:size]], next_page_token=token)

    async def DeleteSegments(self, request: pb.DeleteSegmentsRequest, _: object) -> pb.DeleteSegmentsResponse:
        """Delete the requested segments that may be deleted."""
        segments = self._log().segments
        deletions = await segments.delete(request.base_physical_offsets, allow_unindexed=request.allow_unindexed)
        return pb.DeleteSegmentsResponse(
            outcomes=[_outcome(deletion) for deletion in deletions],
            min_physical_offset=segments.min_physical_offset,
        )

    async def ReportDisk(self, request: pb.ReportDiskRequest, _: object) -> pb.ReportDiskResponse:
        """Open or close the gate for appends by a report of the Janitor."""
        ratio = request.used_ratio
        if math.isnan(ratio) or not 0 <= ratio <= 1:
            raise BadArgument("a ratio is from 0 to 1", field="used_ratio", value=ratio, limit=1)
        log = self._log()
        log.disk.report(is_full=request.is_full, used_ratio=ratio)
        return pb.ReportDiskResponse(is_writable=log.gate.is_open)


def _segment(facts: SegmentFacts) -> pb.Segment:
    first_ms, last_ms = facts.first_store_time_ms, facts.last_store_time_ms
    return named(
        pb.Segment,
        facts,
        first_store_time=timestamp(first_ms) if first_ms else None,
        last_store_time=timestamp(last_ms) if last_ms else None,
    )


def _outcome(deletion: Deletion) -> pb.DeleteOutcome:
    refusal = "UNSPECIFIED" if deletion.refusal is None else deletion.refusal.name
    number = pb.DeleteRefusal.Value(f"DELETE_REFUSAL_{refusal}")
    return named(pb.DeleteOutcome, deletion, is_deleted=deletion.refusal is None, refusal=number)
