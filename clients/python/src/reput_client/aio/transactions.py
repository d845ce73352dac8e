# SPDX-License-Identifier: Apache-2.0
"""Transactions: messages that consumers get after their producer's commit, and checks of unended transactions."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1 import append_service_pb2
from reput.delivery.v1 import transaction_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.core.call import PAGE_SIZE, Call
from reput_client.core.encode import Encoder
from reput_client.core.errors import ReputError
from reput_client.core.sharing.outage import AT_ONCE, Outage
from reput_client.core.sharing.transactions import OpenTransaction, half_message, open_transaction, seconds_of
from reput_client.core.telemetry.log import log
from reput_client.core.types import Message, NewMessage

CHECK_WAIT_S = 20
"""How long a call waits for a check, in seconds."""


class AsyncTransactions:
    """Begins, ends, checks and lists the transactions of a store."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels

    async def begin(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        group: str,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_id: str | None = None,
        check_after_s: float | None = None,
    ) -> "AsyncTransaction":
        """Send a message that consumers do not get until its transaction is committed.

        `group` is the producer group. Its members are asked for the outcome of a transaction that is not ended: after
        6 s, or after `check_after_s` (whole seconds, up to 40 days). A second call with the same `unique_id` begins no
        new transaction. Use the transaction in a block, which commits it, or rolls it back if the block ends with an
        exception. Raises ReputError, and ValueError or TypeError for a message that can't be encoded.
        """
        message = NewMessage(topic, body, tag, keys, properties or {}, queue_id, unique_id=unique_id)
        chunk, name = Encoder(makes_unique_ids=True).encode(half_message(message, group, seconds_of(check_after_s)))
        request = append_service_pb2.AppendRequest.FromString(chunk)
        await self._channels.run(Call(request))  # may be repeated: the id identifies the transaction
        return AsyncTransaction(self._channels, name, group)

    async def commit(self, transaction_id: str, *, group: str = "") -> None:
        """Commit a transaction, by its id or the offset message id of its message. May be repeated.

        Consumers then get its message. Raises NotFoundError, and FailedPreconditionError if it has ended in another
        way, or if the store does not accept its message. With `group` it must belong to this producer group.
        """
        await self._end(transaction_id, group, is_committed=True)

    async def rollback(self, transaction_id: str, *, group: str = "") -> None:
        """Roll a transaction back: consumers never get its message. Like `commit` otherwise."""
        await self._end(transaction_id, group, is_committed=False)

    async def checks(self, *groups: str) -> "AsyncIterator[AsyncCheck]":
        """Yield transactions that a member of these producer groups has to end, without an end.

        A transaction that is not ended comes again, to this member or another. While Delivery is unavailable, the call
        is retried until Delivery answers. Raises ReputError for a permanent refusal.
        """
        request = transaction_service_pb2.ReceiveChecksRequest(
            producer_groups=groups, check_count_max=1, wait=Duration(seconds=CHECK_WAIT_S)
        )
        outage = Outage(f"asking for transactions of {', '.join(groups)}", self._channels.retry)
        while True:
            try:
                answer: Any = await self._channels.run(Call(request, extra_timeout_s=CHECK_WAIT_S), AT_ONCE)
            except ReputError as error:
                delay_s = outage.on_failure(error, time.monotonic())
                if delay_s is None:
                    raise
                await asyncio.sleep(delay_s)
                continue
            outage.on_success(time.monotonic())
            for check in answer.checks:
                yield AsyncCheck(self._channels, open_transaction(check.transaction), Message(check.message))

    def list(self, group: str = "") -> AsyncIterator[OpenTransaction]:
        """Yield the open transactions of a producer group, or of all groups, the oldest first."""
        request = transaction_service_pb2.ListTransactionsRequest(producer_group=group, page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(open_transaction, page.transactions))

    async def _end(self, transaction_id: str, group: str, *, is_committed: bool) -> None:
        how = transaction_service_pb2.RESOLUTION_COMMIT if is_committed else transaction_service_pb2.RESOLUTION_ROLLBACK
        request = transaction_service_pb2.EndTransactionRequest(
            transaction_id=transaction_id, producer_group=group, resolution=how
        )
        await self._channels.run(Call(request))


class AsyncTransaction:
    """A transaction that this program began. A block commits it, or rolls it back after an exception.

    If the roll-back fails, the block still raises its own exception.
    """

    def __init__(self, channels: AsyncChannels, transaction_id: str, group: str) -> None:
        self.id, self.group = transaction_id, group
        self._transactions = AsyncTransactions(channels)

    async def commit(self) -> None:
        """Commit the transaction: consumers get its message. May be repeated."""
        await self._transactions.commit(self.id, group=self.group)

    async def rollback(self) -> None:
        """Roll the transaction back: consumers never get its message. May be repeated."""
        await self._transactions.rollback(self.id, group=self.group)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except ReputError as failure:  # the block's own exception says more
            log.warning("transaction %s is not rolled back, and is asked about later: %s", self.id, failure)


class AsyncCheck(AsyncTransaction):
    """A transaction of another program, which a member of its producer group has to end."""

    def __init__(self, channels: AsyncChannels, transaction: OpenTransaction, message: Message) -> None:
        super().__init__(channels, transaction.id, transaction.group)
        self.transaction, self.message = transaction, message
