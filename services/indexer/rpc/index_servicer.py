# SPDX-License-Identifier: Apache-2.0
"""IndexService: the state of the indexes, and trimming for the Janitor."""

import importlib.metadata

from reput.indexer.v1 import index_service_pb2 as messages

from services.indexer.engine.completeness import UNKNOWN
from services.indexer.engine.delay_delivery import DelayDelivery
from services.indexer.engine.indexer import Indexer
from services.indexer.rpc import requests
from services.indexer.rpc.responses import timestamp

VERSION = importlib.metadata.version("reput-server")


class IndexServicer:
    """Answers the two calls."""

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer

    async def GetStatus(self, _request: messages.GetStatusRequest, _: object) -> messages.GetStatusResponse:
        """How far the indexes are."""
        indexer, reput, completeness = self._indexer, self._indexer.reput, self._indexer.completeness
        target = completeness.target_physical_offset
        return messages.GetStatusResponse(
            state=messages.ReputState.ValueType(reput.state),
            indexed_physical_offset=reput.indexed_physical_offset,
            flushed_physical_offset=indexer.flush.flushed_physical_offset,
            confirmed_physical_offset=reput.confirmed_physical_offset,
            min_physical_offset=indexer.queues.min_physical_offset,
            epoch=reput.epoch,
            queue_count=indexer.queues.queue_count,
            index_file_count=indexer.index.file_count,
            index_entry_count=indexer.index.entry_count,
            applied_record_count=reput.applied_record_count,
            last_store_time=timestamp(reput.last_store_time_ms or None),
            last_error=reput.last_error,
            start_time=timestamp(indexer.start_time_ms),
            version=VERSION,
            is_complete=completeness.is_complete,
            complete_physical_offset=0 if target == UNKNOWN else target,
            delayed_delivery=_delayed(indexer.delivery),
        )

    async def TrimTo(self, request: messages.TrimToRequest, _: object) -> messages.TrimToResponse:
        """Forget old records."""
        trimmed = self._indexer.trim(requests.not_negative(request.min_physical_offset, "min_physical_offset"))
        return messages.TrimToResponse(
            deleted_queue_file_count=trimmed.queue_file_count,
            deleted_index_file_count=trimmed.index_file_count,
            freed_bytes=trimmed.freed_bytes,
        )


def _delayed(delivery: DelayDelivery | None) -> messages.DelayedDelivery | None:
    if delivery is None:
        return None
    counts = delivery.statistics()
    return messages.DelayedDelivery(
        delivered_count=counts.delivered_total,
        lost_count=counts.lost_total,
        waiting_count=counts.waiting_count,
        lateness_ms=counts.lateness_ms,
        blocked_level_count=counts.blocked_level_count,
        last_error=delivery.last_error,
    )
