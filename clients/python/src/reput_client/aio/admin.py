# SPDX-License-Identifier: Apache-2.0
"""AsyncAdmin: calls for operators: states, segments, retention, indexes, and the leader of the log."""

from collections.abc import AsyncIterator

from grpc import StatusCode
from reput.commitlog.v1 import backup_service_pb2, log_service_pb2, replication_service_pb2, segment_service_pb2
from reput.indexer.v1 import index_service_pb2, rebuild_service_pb2
from reput.janitor.v1 import retention_service_pb2

from reput_client.aio.channels import AsyncPart
from reput_client.core.call import PAGE_SIZE, Call
from reput_client.core.errors import UnavailableError

ADMIN_TIMEOUT_S = 600.0
"""A manual run deletes up to 200 segments with a pause after each; removing a queue costs some syncs."""


class AsyncAdmin(AsyncPart):
    """States, segments and retention, for operators. Answers are the API's own messages (protos/reput)."""

    async def commitlog_status(self) -> log_service_pb2.GetStatusResponse:
        """Return the state of the log."""
        return await self._channels.run(Call(log_service_pb2.GetStatusRequest()))

    async def indexer_status(self) -> index_service_pb2.GetStatusResponse:
        """Return the state of the Indexer: how far the log is indexed."""
        return await self._channels.run(Call(index_service_pb2.GetStatusRequest()))

    def rebuild_indexes(self) -> AsyncIterator[rebuild_service_pb2.RebuildIndexesResponse]:
        """Drop all indexes and build them again. Yields the progress until the rebuild ends.

        The rebuild continues when the caller stops iterating. Calls that need the indexes fail until it is done. Raises
        FailedPreconditionError with RUN_IN_PROGRESS while another rebuild runs.
        """
        return self._channels.stream(Call(rebuild_service_pb2.RebuildIndexesRequest(), is_repeatable=False))

    async def remove_expired_queues(self, *, dry_run: bool) -> index_service_pb2.RemoveQueuesResponse:
        """Remove queues all of whose messages have expired. A dry run only returns their names.

        Durable when it returns. The answer names 1,000 queues at most.
        """
        return await self._remove_queues(index_service_pb2.QUEUE_SELECTION_EXPIRED, dry_run=dry_run)

    async def remove_unused_queues(self, *, dry_run: bool) -> index_service_pb2.RemoveQueuesResponse:
        """Remove the queues of topics that the CommitLog does not know any more. A dry run only returns their names.

        It frees space: since the deletion of the topic no reader gets their messages. Durable when it returns. The
        answer names 1,000 queues at most.
        """
        return await self._remove_queues(index_service_pb2.QUEUE_SELECTION_UNUSED_TOPICS, dry_run=dry_run)

    async def janitor_status(self) -> retention_service_pb2.GetStatusResponse:
        """Return the state of the Janitor."""
        return await self._channels.run(Call(retention_service_pb2.GetStatusRequest()))

    async def retention_policy(self) -> retention_service_pb2.GetPolicyResponse:
        """Return the retention policy in force."""
        return await self._channels.run(Call(retention_service_pb2.GetPolicyRequest()))

    async def run_retention(
        self,
        *,
        dry_run: bool,
        trust_clock: bool = False,
        retention_hours: int | None = None,
        retention_bytes: int | None = None,
        topic: str = "",
    ) -> retention_service_pb2.Run:
        """Decide now which segments expire, and delete them unless it is a dry run.

        With `trust_clock` the Janitor believes its clock even if the clock jumped or is ahead: from now on, or with
        `dry_run` only for this run. A dry run may have other limits, of the policy or of a topic.
        """
        request = retention_service_pb2.RunOnceRequest(
            dry_run=dry_run,
            trust_clock=trust_clock,
            retention_hours=retention_hours,
            retention_bytes=retention_bytes,
            topic=topic,
        )
        call: Call[retention_service_pb2.Run] = Call(
            request, lambda answer: answer.run, is_repeatable=dry_run, extra_timeout_s=ADMIN_TIMEOUT_S
        )
        return await self._channels.run(call)

    async def unread_that_expire(
        self, topic: str, *, retention_hours: int | None = None, retention_bytes: int | None = None
    ) -> dict[str, int]:
        """Return how many unread messages of a topic each group would lose at once by a rule of retention.

        A program asks this before `topics.update` with the same rule, which refuses nothing: the CommitLog does not
        know the groups. Raises UnavailableError if the Janitor or the Indexer can't tell.
        """
        run = await self.run_retention(
            dry_run=True, retention_hours=retention_hours, retention_bytes=retention_bytes, topic=topic
        )
        for decided in run.topics:
            if decided.topic == topic and decided.error:
                raise UnavailableError(decided.error, code=StatusCode.UNAVAILABLE)
        unread: dict[str, int] = {}
        for one in run.consumers:
            if one.topic == topic:
                unread[one.group] = unread.get(one.group, 0) + one.min_queue_offset - one.queue_offset
        return unread

    def retention_history(self) -> AsyncIterator[retention_service_pb2.Run]:
        """Yield past runs that deleted something or failed, newest first."""
        request = retention_service_pb2.ListHistoryRequest(page_size=100)
        return self._channels.pages(request, lambda page: page.runs)

    def segments(self) -> AsyncIterator[segment_service_pb2.Segment]:
        """Yield the segments of the log, oldest first."""
        request = segment_service_pb2.ListSegmentsRequest(page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: page.segments)

    def backup_state(self) -> AsyncIterator[backup_service_pb2.ReadStateResponse]:
        """Yield an end of the log, then the CommitLog's small files as of this end, in parts."""
        return self._channels.stream(Call(backup_service_pb2.ReadStateRequest()))

    def raw_records(
        self, start_physical_offset: int, end_physical_offset: int
    ) -> AsyncIterator[log_service_pb2.StreamRecordsResponse]:
        """Yield the records of a part of the log as the bytes of the log. The start is the first byte of a record."""
        request = log_service_pb2.StreamRecordsRequest(
            start_physical_offset=start_physical_offset,
            end_physical_offset=end_physical_offset,
            view=log_service_pb2.RECORD_VIEW_RAW,
        )
        return self._channels.stream(Call(request))

    async def demote(self, replica_id: str, leader_target: str) -> replication_service_pb2.DemoteResponse:
        """Make the leader of a log a follower of `replica_id`, which it reaches at `leader_target` (host:port).

        The leader takes no more appends, waits until this follower has all of the log, and follows it. Then the new
        leader must be promoted (`promote`). Raises UnavailableError with REPLICA_BEHIND if the follower lacks a part of
        the log; then nothing has changed.
        """
        request = replication_service_pb2.DemoteRequest(replica_id=replica_id, leader_target=leader_target)
        return await self._channels.run(Call(request, is_repeatable=False))

    async def promote(
        self,
        role: log_service_pb2.Role.ValueType,
        *,
        epoch: int = 0,
        end_physical_offset: int = 0,
        accept_data_loss: bool = False,
    ) -> replication_service_pb2.PromoteResponse:
        """Make a follower the leader of its log. Epoch and end prove that nothing is lost.

        They are the values that `demote` of the former leader returned. Raises FailedPreconditionError with
        MAY_LOSE_DATA without a proof, unless `accept_data_loss` is set.
        """
        request = replication_service_pb2.PromoteRequest(
            role=role, epoch=epoch, end_physical_offset=end_physical_offset, accept_data_loss=accept_data_loss
        )
        return await self._channels.run(Call(request))

    async def _remove_queues(
        self, selection: index_service_pb2.QueueSelection.ValueType, *, dry_run: bool
    ) -> index_service_pb2.RemoveQueuesResponse:
        request = index_service_pb2.RemoveQueuesRequest(selection=selection, dry_run=dry_run)
        return await self._channels.run(Call(request, is_repeatable=dry_run, extra_timeout_s=ADMIN_TIMEOUT_S))
