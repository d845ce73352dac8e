# SPDX-License-Identifier: Apache-2.0
"""Calls for operators: states, segments, retention. Answers are handed out as the API's own messages."""

from reput.commitlog.v1 import log_service_pb2, segment_service_pb2
from reput.indexer.v1 import index_service_pb2, rebuild_service_pb2
from reput.janitor.v1 import retention_service_pb2

from reput_client.core.calls.call import Call, Pages, same

_RETENTION = "reput.janitor.v1.RetentionService"
RUN_TIMEOUT_S = 600.0
"""A manual run deletes up to 200 segments with a pause after each; removing a queue costs some syncs."""


def commitlog_status() -> Call[log_service_pb2.GetStatusResponse]:
    """The state of the log."""
    path = "reput.commitlog.v1.LogService/GetStatus"
    return Call("commitlog", path, log_service_pb2.GetStatusRequest(), log_service_pb2.GetStatusResponse, same)


def indexer_status() -> Call[index_service_pb2.GetStatusResponse]:
    """How far the indexes are."""
    path = "reput.indexer.v1.IndexService/GetStatus"
    return Call("indexer", path, index_service_pb2.GetStatusRequest(), index_service_pb2.GetStatusResponse, same)


def rebuild_indexes() -> Call[rebuild_service_pb2.RebuildIndexesResponse]:
    """Drop all indexes and build them again; streams how far it is."""
    path = "reput.indexer.v1.RebuildService/RebuildIndexes"
    request, response_type = rebuild_service_pb2.RebuildIndexesRequest(), rebuild_service_pb2.RebuildIndexesResponse
    return Call("indexer", path, request, response_type, same, is_repeatable=False)


def remove_queues(
    selection: index_service_pb2.QueueSelection.ValueType, *, dry_run: bool
) -> Call[index_service_pb2.RemoveQueuesResponse]:
    """Remove queues that nobody needs, or tell which they are."""
    return Call(
        "indexer",
        "reput.indexer.v1.IndexService/RemoveQueues",
        index_service_pb2.RemoveQueuesRequest(selection=selection, dry_run=dry_run),
        index_service_pb2.RemoveQueuesResponse,
        same,
        is_repeatable=dry_run,
        extra_timeout_s=RUN_TIMEOUT_S,
    )


def janitor_status() -> Call[retention_service_pb2.GetStatusResponse]:
    """What the Janitor does."""
    request = retention_service_pb2.GetStatusRequest()
    return Call("janitor", f"{_RETENTION}/GetStatus", request, retention_service_pb2.GetStatusResponse, same)


def retention_policy() -> Call[retention_service_pb2.GetPolicyResponse]:
    """The retention policy in force."""
    request = retention_service_pb2.GetPolicyRequest()
    return Call("janitor", f"{_RETENTION}/GetPolicy", request, retention_service_pb2.GetPolicyResponse, same)


def run_retention(*, dry_run: bool, trust_clock: bool) -> Call[retention_service_pb2.Run]:
    """Decide now, and delete unless it is a dry run."""
    return Call(
        "janitor",
        f"{_RETENTION}/RunOnce",
        retention_service_pb2.RunOnceRequest(dry_run=dry_run, trust_clock=trust_clock),
        retention_service_pb2.RunOnceResponse,
        lambda response: response.run,
        is_repeatable=dry_run,
        extra_timeout_s=RUN_TIMEOUT_S,
    )


def retention_history() -> Pages[retention_service_pb2.Run]:
    """Past runs, newest first."""
    request = retention_service_pb2.ListHistoryRequest(page_size=100)
    call = Call("janitor", f"{_RETENTION}/ListHistory", request, retention_service_pb2.ListHistoryResponse, same)
    return Pages(call, lambda page: list(page.runs))


def segments() -> Pages[segment_service_pb2.Segment]:
    """The segments of the log, oldest first."""
    request = segment_service_pb2.ListSegmentsRequest(page_size=1000)
    path = "reput.commitlog.v1.SegmentService/ListSegments"
    call = Call("commitlog", path, request, segment_service_pb2.ListSegmentsResponse, same)
    return Pages(call, lambda page: list(page.segments))
