# SPDX-License-Identifier: Apache-2.0
"""DeliveryClient: the gateway's calls to Delivery."""

from collections.abc import Mapping, Sequence

from google.protobuf.duration import from_milliseconds
from google.protobuf.duration_pb2 import Duration
from reput.delivery.v1 import (
    delay_service_pb2,
    delay_service_pb2_grpc,
    delivery_service_pb2,
    delivery_service_pb2_grpc,
    group_service_pb2,
    group_service_pb2_grpc,
    transaction_service_pb2,
    transaction_service_pb2_grpc,
)

from libs.formats.records.delivery_record import Policy
from libs.requests.errors import PeerError
from libs.runtime.peer.calls import error_within
from libs.runtime.peer.leader import LeaderClient
from services.gateway.engine.shared_calls import SharedCalls
from services.gateway.errors import Refused
from services.gateway.rpc.store.ports import Settled

SERVICE = "delivery"
_Deliveries = delivery_service_pb2_grpc.DeliveryServiceStub
_Groups = group_service_pb2_grpc.GroupServiceStub
_Transactions = transaction_service_pb2_grpc.TransactionServiceStub
_Delays = delay_service_pb2_grpc.DelayServiceStub
SettleEntry = delivery_service_pb2.SettleEntry
ENTRY_COUNT_MAX = 1_000
"""The limit in delivery_service.proto."""


class DeliveryClient:
    """The client of Delivery. All calls raise PeerError."""

    def __init__(self, delivery: LeaderClient) -> None:
        self._delivery = delivery
        self._acks = SharedCalls(self.settle, entry_count_max=ENTRY_COUNT_MAX, size_of=lambda entry: len(entry.handle))

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        broker: str = "",  # noqa: ARG002 - a single store
        count: int,
        invisible_ms: int | None,
        tags: str,
        where: str,
        wait_s: float,
        attempt_id: str,
    ) -> Sequence[delivery_service_pb2.ReceivedMessage]:
        """Return messages, invisible for others for `invisible_ms`. None means the time of the group's policy."""
        request = delivery_service_pb2.ReceiveRequest(
            group=group,
            topic=topic,
            message_count_max=count,
            invisible=None if invisible_ms is None else from_milliseconds(invisible_ms),
            tag_expression=tags,
            where=where,
            wait=from_milliseconds(round(wait_s * 1000)),
            attempt_id=attempt_id,
        )
        response = await self._delivery.call(_Deliveries, "Receive", request, wait_s=wait_s)
        messages: Sequence[delivery_service_pb2.ReceivedMessage] = response.messages
        return messages

    async def settle(self, entries: Sequence[SettleEntry]) -> list[Settled]:
        """Settle messages by entries. Returns for each the handle from now on, "" for none, or an error."""
        request = delivery_service_pb2.SettleRequest(entries=entries)
        response = await self._delivery.call(_Deliveries, "Settle", request)
        return [_outcome(one) for one in response.outcomes]

    async def ack(self, handles: Sequence[str]) -> Sequence[Settled]:
        """Acknowledge messages, together with other callers' entries. Returns for each "" or an error."""
        ack = delivery_service_pb2.Ack()
        return await self._acks.outcomes([SettleEntry(handle=handle, ack=ack) for handle in handles])

    async def change(self, entry: SettleEntry) -> str:
        """Change a message's invisible time, together with other callers' entries.

        Returns its handle from now on, "" for none. Raises Refused, too.
        """
        (outcome,) = await self._acks.outcomes([entry])
        return _handle(outcome)

    async def bury(self, entry: SettleEntry) -> None:
        """Make a message a dead letter, by a call of its own: it reads the message first. Raises Refused, too."""
        (outcome,) = await self.settle([entry])
        _handle(outcome)

    async def renew(self, handles: Sequence[str], invisible_s: float) -> Mapping[str, bool]:
        """Return for each handle whether its message is invisible for `invisible_s` from now on."""
        extend = delivery_service_pb2.Extend(invisible=Duration(seconds=round(invisible_s)), keeps_handle=True)
        outcomes = await self.settle([SettleEntry(handle=handle, extend=extend) for handle in handles])
        return {handle: isinstance(outcome, str) for handle, outcome in zip(handles, outcomes, strict=True)}

    async def end_transaction(self, name: str, producer_group: str, *, is_committed: bool) -> None:
        """Commit or roll back a transaction."""
        how = transaction_service_pb2.RESOLUTION_COMMIT if is_committed else transaction_service_pb2.RESOLUTION_ROLLBACK
        request = transaction_service_pb2.EndTransactionRequest(
            transaction_id=name, producer_group=producer_group, resolution=how
        )
        await self._delivery.call(_Transactions, "EndTransaction", request)

    async def checks(
        self, producer_groups: Sequence[str], count: int, *, wait_s: float
    ) -> Sequence[transaction_service_pb2.TransactionCheck]:
        """Return transactions about which a producer of these groups has to be asked."""
        request = transaction_service_pb2.ReceiveChecksRequest(
            producer_groups=producer_groups, check_count_max=count, wait=from_milliseconds(round(wait_s * 1000))
        )
        response = await self._delivery.call(_Transactions, "ReceiveChecks", request, wait_s=wait_s)
        checks: Sequence[transaction_service_pb2.TransactionCheck] = response.checks
        return checks

    async def cancel(self, topic: str, message_id: str, *, broker: str = "") -> None:  # noqa: ARG002 - a single store
        """Cancel a message that waits for its delivery time."""
        request = delay_service_pb2.CancelDelayedRequest(topic=topic, message_id=message_id)
        await self._delivery.call(_Delays, "CancelDelayed", request)

    async def policy(self, group: str) -> group_service_pb2.GroupPolicy:
        """Return the policy of a group, and the default policy for an unknown group."""
        try:
            response = await self._delivery.call(_Groups, "GetGroup", group_service_pb2.GetGroupRequest(group=group))
        except PeerError as error:
            if error.reason != "GROUP_NOT_FOUND":
                raise
            default = Policy()
            backoffs = map(from_milliseconds, default.waits_ms)
            return group_service_pb2.GroupPolicy(attempts_max=default.attempts_max, backoffs=backoffs)
        policy: group_service_pb2.GroupPolicy = response.group.policy
        return policy


def _handle(outcome: Settled) -> str:
    """Return the handle of an outcome, or raise its error."""
    if isinstance(outcome, str):
        return outcome
    raise outcome


def _outcome(outcome: delivery_service_pb2.SettleOutcome) -> Settled:
    if not outcome.HasField("error"):
        return str(outcome.handle)
    error = error_within(SERVICE, outcome.error)
    if error.reason in ("BAD_ARGUMENT", "HANDLE_OUTDATED"):  # libraries retry without end on other codes
        return Refused("INVALID_RECEIPT_HANDLE", str(error))
    return error
