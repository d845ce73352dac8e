# SPDX-License-Identifier: Apache-2.0
"""RetentionService over a RetentionLoop and its history."""

import importlib.metadata

from reput.janitor.v1 import retention_service_pb2 as messages

from libs.requests.checks import size_of_page
from libs.requests.page_token import decode_number, encode_number
from libs.runtime.rpc.timestamps import timestamp
from services.janitor.engine.history import RunHistory
from services.janitor.engine.retention_loop import RetentionLoop
from services.janitor.rpc.convert import disk_message, run_message

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 20, 100
LIST = "history"
VERSION = importlib.metadata.version("reput-server")


class RetentionServicer:
    """Answers the four calls. `time_zone` is the name of the zone that the policy's hours are in."""

    def __init__(self, loop: RetentionLoop, history: RunHistory, *, time_zone: str) -> None:
        self._loop, self._history, self._time_zone = loop, history, time_zone

    async def GetStatus(self, _request: messages.GetStatusRequest, _: object) -> messages.GetStatusResponse:
        """Return what the loop did since the start."""
        statistics = self._loop.statistics()
        return messages.GetStatusResponse(
            is_running=statistics.is_running,
            last_check_time=timestamp(statistics.last_check_ms),
            next_check_time=timestamp(statistics.next_check_ms),
            last_error=statistics.last_error,
            deleted_segment_count=statistics.deleted_segment_count,
            freed_bytes=statistics.freed_bytes,
            start_time=timestamp(statistics.start_ms),
            version=VERSION,
            disks=map(disk_message, statistics.disks),
            is_disk_full=statistics.is_disk_full,
            run_trigger=statistics.run_trigger,
            run_planned_segment_count=statistics.run_planned_segment_count,
            run_deleted_segment_count=statistics.run_deleted_segment_count,
            lost_segment_count=statistics.lost_segment_count,
            disk_notes=[note.text for note in statistics.disk_notes],
            clock_note=statistics.believed.note if statistics.believed else "",
            believed_time=timestamp(statistics.believed.now_ms if statistics.believed else None),
        )

    async def GetPolicy(self, _request: messages.GetPolicyRequest, _: object) -> messages.GetPolicyResponse:
        """Return the policy in force."""
        policy, pace, time = self._loop.policy, self._loop.pace, self._loop.time
        return messages.GetPolicyResponse(
            retention_hours=policy.retention_hours,
            delete_hours=sorted(policy.schedule.hours),
            time_zone=self._time_zone,
            delete_batch_count_max=policy.delete_batch_count_max,
            delete_interval_ms=pace.delete_interval_ms,
            check_interval_ms=pace.check_interval_ms,
            retention_bytes=policy.retention_bytes,
            disk_max_used_percent=policy.disk_max_used_percent,
            disk_forcible_percent=policy.disk_forcible_percent,
            disk_full_percent=policy.disk_full_percent,
            disk_forced=policy.disk_forced,
            unsafe_segments=policy.unsafe_segments.value,
            retry_interval_ms=pace.retry_interval_ms,
            clock_ahead_ms_max=time.ahead_ms_max,
            clock_jump_ms_max=time.jump_ms_max,
        )

    async def RunOnce(self, request: messages.RunOnceRequest, _: object) -> messages.RunOnceResponse:
        """Decide now and delete unless it is a dry run."""
        run = await self._loop.run_once(is_dry_run=request.dry_run, trusts_clock=request.trust_clock)
        return messages.RunOnceResponse(run=run_message(run))

    async def ListHistory(self, request: messages.ListHistoryRequest, _: object) -> messages.ListHistoryResponse:
        """Return a page of past runs. The token is the time of the page's last run."""
        count = size_of_page(request.page_size, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        before_ms = decode_number(LIST, (), request.page_token) or None
        runs, has_more = self._history.page(before_ms=before_ms, count=count)
        token = encode_number(LIST, (), runs[-1].time_ms) if has_more else ""
        return messages.ListHistoryResponse(runs=map(run_message, runs), next_page_token=token)
