# SPDX-License-Identifier: Apache-2.0
"""Protobuf to domain values and back. No logic."""

import dataclasses

from reput.commitlog.v1 import log_service_pb2, segment_service_pb2
from reput.common.v1 import consumer_pb2
from reput.indexer.v1 import index_service_pb2
from reput.janitor.v1 import retention_service_pb2

from libs.runtime.rpc.by_name import named
from libs.runtime.rpc.timestamps import timestamp
from services.janitor.engine.facts import ConsumerBelow, Disk, SegmentFacts, Trimmed
from services.janitor.engine.history import Run
from services.janitor.engine.policy import Decision


def segment_facts(segment: segment_service_pb2.Segment) -> SegmentFacts:
    """Return what the policy needs of a segment."""
    last = segment.last_store_time
    return SegmentFacts(
        base_physical_offset=segment.base_physical_offset,
        size_bytes=segment.size_bytes,
        last_store_time_ms=last.ToMilliseconds() if segment.HasField("last_store_time") else None,
        is_active=segment.is_active,
        is_indexed=segment.is_indexed,
    )


def disk(
    service: str,
    told: log_service_pb2.LogDirectory | index_service_pb2.GetStatusResponse,
    path: str = "",
    own_bytes: int | None = None,
) -> Disk:
    """Return the disk of an owner, by what the owner told. A total of 0 bytes means that it is unknown."""
    used_percent = told.disk_used_percent if told.disk_total_bytes > 0 else None
    return Disk(service, used_percent, told.disk_total_bytes, told.disk_free_bytes, path, own_bytes)


def trimmed(response: index_service_pb2.TrimToResponse) -> Trimmed:
    """Return what the Indexer forgot."""
    consumers = [
        ConsumerBelow(one.group, one.topic, one.queue_id, one.queue_offset, one.min_queue_offset)
        for one in response.consumers
    ]
    return Trimmed(response.freed_bytes, consumers, response.consumer_count, response.own_bytes)


def disk_message(known: Disk) -> retention_service_pb2.Disk:
    """Return a disk as the API shows it."""
    return named(retention_service_pb2.Disk, known, used_percent=known.used_percent or 0)


def run_message(run: Run) -> retention_service_pb2.Run:
    """Return a run as the API shows it."""
    return named(
        retention_service_pb2.Run,
        run,
        time=timestamp(run.time_ms),
        decisions=map(_decision_message, run.decisions),
        consumers=[consumer_pb2.ConsumerBelow(**dataclasses.asdict(one)) for one in run.consumers],
    )


def _decision_message(decision: Decision) -> retention_service_pb2.Decision:
    action = retention_service_pb2.ACTION_DELETE if decision.is_delete else retention_service_pb2.ACTION_KEEP
    return retention_service_pb2.Decision(
        base_physical_offset=decision.base_physical_offset,
        size_bytes=decision.size_bytes,
        action=action,
        reason=decision.reason.value,
        explanation=decision.explanation,
        last_store_time=timestamp(decision.last_store_time_ms),
        is_lost=decision.is_lost,
    )
