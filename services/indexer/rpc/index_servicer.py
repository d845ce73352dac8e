# SPDX-License-Identifier: Apache-2.0
"""IndexService: the state of the indexes, waiting for them, and trimming for the Janitor."""

import grpc
import msgspec
from reput.common.v1 import consumer_pb2
from reput.indexer.v1 import index_service_pb2 as messages

from libs.formats.state.index_progress import Stepped
from libs.requests import arguments
from libs.requests.checks import check_range
from libs.requests.errors import BadArgument
from libs.runtime.rpc.by_name import named
from libs.runtime.rpc.timestamps import timestamp
from libs.runtime.trust.audit.change import note
from libs.runtime.version import VERSION
from services.indexer.engine.follow.completeness import UNKNOWN
from services.indexer.engine.groups.consumers_below import ConsumerBelow, consumers_below, topic_consumers_below
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.statistics import statistics
from services.indexer.engine.upkeep.queue_removal import QueueRemoval

WAIT_S = 5.0
"""As in index_service.proto."""
MARGIN_S = 0.5
"""Time before the caller's deadline at which the call is answered at the latest."""
CONSUMER_COUNT_MAX = 100
REMOVED_QUEUE_COUNT_MAX = 1_000
STEPPED_OVER_COUNT_MAX = 100
NOTED_QUEUE_COUNT_MAX = 64
"""Maximum number of removed queues whose topics the audit line has."""

_REMOVALS = {
    messages.QUEUE_SELECTION_EXPIRED: QueueRemoval.remove_expired,
    messages.QUEUE_SELECTION_UNUSED_TOPICS: QueueRemoval.remove_unused,
}


class IndexServicer:
    """Serves reput.indexer.v1.IndexService."""

    def __init__(self, indexer: Indexer, *, start_time_ms: int) -> None:
        self._indexer = indexer
        self._start_time_ms = start_time_ms

    async def GetStatus(self, _request: messages.GetStatusRequest, _: object) -> messages.GetStatusResponse:
        """Return the state of the indexes."""
        disk = await self._indexer.upkeep.trim.disk_usage()
        indexes, follow = self._indexer.indexes, self._indexer.follow
        target = follow.completeness.target_physical_offset
        return named(
            messages.GetStatusResponse,
            statistics(self._indexer),
            index_entry_count=indexes.index.entry_count,
            last_store_time=timestamp(indexes.reached.last_store_time_ms or None),
            last_error=follow.states.last_error,
            start_time=timestamp(self._start_time_ms),
            version=VERSION,
            is_complete=follow.completeness.is_complete,
            complete_physical_offset=0 if target == UNKNOWN else target,
            disk_path=str(self._indexer.upkeep.trim.directory),
            disk_total_bytes=disk.total_bytes,
            disk_free_bytes=disk.free_bytes,
            disk_used_percent=disk.used_percent,
            damaged_records=[messages.DamagedRecord(**one._asdict()) for one in self._indexer.answers.damage.places()],
            stepped_over=_stepped_over(indexes.queues.stepped_over.notes()),
        )

    async def WaitIndexed(
        self, request: messages.WaitIndexedRequest, context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> messages.WaitIndexedResponse:
        """Answer once a record is indexed, or with an error shortly before the caller's deadline."""
        indexes, left_s = self._indexer.indexes, context.time_remaining()
        wait_s = WAIT_S if left_s is None else min(WAIT_S, left_s - MARGIN_S)
        await indexes.wait_for(check_range(request.physical_offset, "physical_offset"), wait_s)
        return messages.WaitIndexedResponse(indexed_physical_offset=indexes.reached.indexed_physical_offset)

    async def TrimTo(self, request: messages.TrimToRequest, _: object) -> messages.TrimToResponse:
        """Drop old records, or return how much that would be. An Indexer beside another log drops nothing."""
        offset = check_range(request.min_physical_offset, "min_physical_offset")
        self._indexer.follow.reput.check_same_log()
        queues = self._indexer.indexes.queues
        below, count = await consumers_below(self._indexer.groups, queues, offset, count_max=CONSUMER_COUNT_MAX)
        trim = self._indexer.upkeep.trim
        if not request.dry_run:
            await self._indexer.follow.shared_state.keep(offset)
        trimmed = await trim.would_trim(offset) if request.dry_run else trim.trim(offset)
        return named(
            messages.TrimToResponse,
            trimmed,
            deleted_queue_file_count=trimmed.queue_file_count,
            deleted_index_file_count=trimmed.index_file_count,
            consumers=[consumer_pb2.ConsumerBelow(**msgspec.structs.asdict(one)) for one in below],
            consumer_count=count,
        )

    async def GetTopicExpiry(
        self, request: messages.GetTopicExpiryRequest, _: object
    ) -> messages.GetTopicExpiryResponse:
        """Return which messages of a topic a rule lets expire."""
        topic = self._indexer.answers.served(arguments.topic(request.topic))
        shown = self._indexer.indexes.queues.kept_from(topic)
        expiry = await self._indexer.upkeep.expiry.of(
            topic,
            min_store_time_ms=arguments.time_ms(request, "min_store_time"),
            size_bytes_max=check_range(request.size_bytes_max, "size_bytes_max"),
        )
        queues, groups = self._indexer.indexes.queues, self._indexer.groups
        below, count = list[ConsumerBelow](), 0
        if request.with_consumers and expiry.expired_message_count:
            below, count = await topic_consumers_below(
                groups, queues, topic, expiry.begin_physical_offset, count_max=CONSUMER_COUNT_MAX
            )
        return named(
            messages.GetTopicExpiryResponse,
            expiry,
            first_store_time=timestamp(expiry.first_store_time_ms),
            shown_physical_offset=shown,
            consumers=[consumer_pb2.ConsumerBelow(**msgspec.structs.asdict(one)) for one in below],
            consumer_count=count,
        )

    async def RemoveQueues(self, request: messages.RemoveQueuesRequest, _: object) -> messages.RemoveQueuesResponse:
        """Remove queues that are not needed, or return their names."""
        remove = _REMOVALS.get(request.selection)
        if remove is None:
            raise BadArgument("must be EXPIRED or UNUSED_TOPICS", field="selection", value=request.selection)
        removed = await remove(self._indexer.upkeep.removal, dry_run=request.dry_run)
        selection = messages.QueueSelection.Name(request.selection)
        topics = sorted({end.topic for end in removed.ends[:NOTED_QUEUE_COUNT_MAX]})
        note(after={"selection": selection, "removed_queue_count": len(removed.ends), "topics": topics})
        return messages.RemoveQueuesResponse(
            removed_queue_count=len(removed.ends),
            deleted_queue_file_count=removed.file_count,
            freed_bytes=removed.freed_bytes,
            queues=[
                messages.RemovedQueue(topic=end.topic, queue_id=end.queue_id, max_queue_offset=end.end_queue_offset)
                for end in removed.ends[:REMOVED_QUEUE_COUNT_MAX]
            ],
        )


def _stepped_over(notes: list[Stepped]) -> list[messages.SteppedOver]:
    latest = sorted(notes, key=lambda note: note.last_physical_offset, reverse=True)[:STEPPED_OVER_COUNT_MAX]
    return [messages.SteppedOver(**msgspec.structs.asdict(note)) for note in latest]
