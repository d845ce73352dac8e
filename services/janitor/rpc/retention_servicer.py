# SPDX-License-Identifier: Apache-2.0
"""RetentionService over a RetentionLoop and its history."""

from collections.abc import Sequence

import msgspec
from reput.common.v1 import consumer_pb2
from reput.janitor.v1 import retention_service_pb2 as messages

from libs.formats.config.topics_json import RETENTION_HOURS_MAX
from libs.requests import arguments
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument
from libs.requests.page_token import decode_number, encode_token
from libs.runtime.rpc.by_name import named
from libs.runtime.rpc.timestamps import timestamp
from libs.runtime.trust.audit.change import note
from libs.runtime.version import VERSION
from services.janitor.engine.history import Run, RunHistory
from services.janitor.engine.policy import Decision
from services.janitor.engine.retention_loop import RetentionLoop
from services.janitor.engine.topic_rules import SHOWN_COUNT_MAX, TopicState

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 20, 100
LIST = "history"


class RetentionServicer:
    """The servicer of the four calls. `time_zone` is the name of the zone of the policy's hours."""

    def __init__(self, loop: RetentionLoop, history: RunHistory, *, time_zone: str) -> None:
        self._loop, self._history, self._time_zone = loop, history, time_zone

    async def GetStatus(self, _request: messages.GetStatusRequest, _: object) -> messages.GetStatusResponse:
        """Return the loop's statistics since the start."""
        statistics = self._loop.statistics()
        return named(
            messages.GetStatusResponse,
            statistics,
            last_check_time=timestamp(statistics.last_check_ms),
            next_check_time=timestamp(statistics.next_check_ms),
            start_time=timestamp(statistics.start_ms),
            version=VERSION,
            disks=[named(messages.Disk, disk, used_percent=disk.used_percent or 0) for disk in statistics.disks],
            topics=_topics(statistics.topics),
            topic_count=len(statistics.topics),
            disk_notes=[note.text for note in statistics.disk_notes],
            clock_note=statistics.believed.note if statistics.believed else "",
            believed_time=timestamp(statistics.believed.now_ms if statistics.believed else None),
        )

    async def GetPolicy(self, _request: messages.GetPolicyRequest, _: object) -> messages.GetPolicyResponse:
        """Return the policy in force."""
        return named(messages.GetPolicyResponse, self._loop.policy, time_zone=self._time_zone)

    async def RunOnce(self, request: messages.RunOnceRequest, _: object) -> messages.RunOnceResponse:
        """Run now: decide, and delete unless it is a dry run."""
        hours = request.retention_hours if request.HasField("retention_hours") else None
        size_bytes = request.retention_bytes if request.HasField("retention_bytes") else None
        if hours is None and size_bytes is None and not request.topic:
            run = await self._loop.run_once(is_dry_run=request.dry_run, trusts_clock=request.trust_clock)
        else:
            _check_trial(request)
            run = await self._loop.try_rules(
                request.topic, hours=hours, size_bytes=size_bytes, trusts_clock=request.trust_clock
            )
        note(
            after={
                "deleted_segment_count": run.deleted_segment_count,
                "freed_bytes": run.freed_bytes,
                "error": run.error,
                "trust_clock": request.trust_clock,
            }
        )
        return messages.RunOnceResponse(run=_run_message(run))

    async def ListHistory(self, request: messages.ListHistoryRequest, _: object) -> messages.ListHistoryResponse:
        """Return a page of past runs. The token is the time of the page's last run."""
        count = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        before_ms = decode_number(LIST, (), request.page_token) or None
        runs, has_more = self._history.page(before_ms=before_ms, count=count)
        token = encode_token(LIST, (), runs[-1].time_ms) if has_more else ""
        return messages.ListHistoryResponse(runs=map(_run_message, runs), next_page_token=token)


def _check_trial(request: messages.RunOnceRequest) -> None:
    """Raise BadArgument if a request with other limits is no dry run, or a limit is out of range."""
    if not request.dry_run:
        field = next(one for one in ("topic", "retention_hours", "retention_bytes") if one in _given(request))
        raise BadArgument("is only for a dry run", field=field, value=str(getattr(request, field)))
    check_range(request.retention_hours, "retention_hours", most=RETENTION_HOURS_MAX)
    check_range(request.retention_bytes, "retention_bytes")
    if request.topic:
        arguments.topic(request.topic)


def _given(request: messages.RunOnceRequest) -> set[str]:
    return {field.name for field, _ in request.ListFields()}


def _topics(states: Sequence[TopicState]) -> list[messages.TopicRetention]:
    """Return topics with a rule of their own in the form of the API."""
    return [
        named(
            messages.TopicRetention,
            state.expiry,
            topic=state.rule.topic,
            retention_hours=state.rule.retention_hours,
            retention_bytes=state.rule.retention_bytes,
            is_longer=state.is_longer,
            error=state.error,
            first_store_time=timestamp(state.expiry.first_store_time_ms),
        )
        for state in states[:SHOWN_COUNT_MAX]
    ]


def _run_message(run: Run) -> messages.Run:
    """Return a run in the form of the API."""
    return named(
        messages.Run,
        run,
        time=timestamp(run.time_ms),
        topics=_topics(run.topics),
        first_kept_store_time=timestamp(run.first_kept_store_time_ms),
        decisions=map(_decision_message, run.decisions),
        consumers=[consumer_pb2.ConsumerBelow(**msgspec.structs.asdict(one)) for one in run.consumers],
    )


def _decision_message(decision: Decision) -> messages.Decision:
    action = messages.ACTION_DELETE if decision.is_delete else messages.ACTION_KEEP
    return messages.Decision(
        base_physical_offset=decision.base_physical_offset,
        size_bytes=decision.size_bytes,
        action=action,
        reason=decision.reason.value,
        explanation=decision.explanation,
        last_store_time=timestamp(decision.last_store_time_ms),
        is_lost=decision.is_lost,
    )
