# SPDX-License-Identifier: Apache-2.0
"""ShardClient: implements the engine's Shards by the Deliveries of the other shards, over gRPC."""

from collections.abc import Mapping, Sequence

from reput.delivery.v1 import group_service_pb2, group_service_pb2_grpc

from libs.requests.errors import DependencyUnavailable, PeerError
from libs.runtime.peer.leader import LeaderClient
from services.delivery.engine.ports.messages import SealedQueue, SealedStage

SERVICE = "delivery of the shard"


class ShardClient:
    """The clients of the shards' Deliveries, by the names of the shards. See Shards."""

    def __init__(self, deliveries: Mapping[str, LeaderClient]) -> None:
        self._deliveries = deliveries

    async def sealed_queues(
        self, shard: str, group: str, topic: str, queue_ids: Sequence[int]
    ) -> Sequence[SealedQueue]:
        """See Shards."""
        if shard not in self._deliveries:
            raise DependencyUnavailable(SERVICE, f"shards_file names no shard {shard}")
        request = group_service_pb2.GetSealedQueuesRequest(group=group, topic=topic, queue_ids=queue_ids)
        try:
            answer = await self._deliveries[shard].call(
                group_service_pb2_grpc.GroupServiceStub, "GetSealedQueues", request
            )
        except PeerError as error:
            raise DependencyUnavailable(f"{SERVICE} {shard}", error.line) from error
        return [
            SealedQueue(
                queue.queue_id,
                SealedStage(group_service_pb2.SealedStage.Name(queue.stage).removeprefix("SEALED_STAGE_")),
                queue.unsettled_count,
            )
            for queue in answer.queues
        ]
