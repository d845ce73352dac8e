# SPDX-License-Identifier: Apache-2.0
"""AuditService: the last audit lines of this service, from memory."""

from reput.common.v1 import audit_service_pb2 as pb

from libs.requests.checks import check_range, size_of_page
from libs.runtime.rpc.timestamps import timestamp
from libs.runtime.trust.trail import KEPT_COUNT_MAX, Trail

PAGE_SIZE_DEFAULT = 100


class AuditServicer:
    """The servicer of reput.common.v1.AuditService."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail

    async def ListLines(self, request: pb.ListLinesRequest, _: object) -> pb.ListLinesResponse:  # noqa: N802
        """Return the newest lines, or the lines after a number."""
        size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=KEPT_COUNT_MAX)
        after_number = check_range(request.after_number, "after_number")
        found = list(self._trail.lines(after_number))
        chosen = found[:size] if after_number else found[-size:]
        answer = pb.ListLinesResponse(
            start_time=timestamp(self._trail.start_time_ms), last_number=self._trail.last_number
        )
        for number, text in chosen:
            answer.lines.add(number=number, json=text)
        return answer
