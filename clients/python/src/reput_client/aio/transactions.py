# SPDX-License-Identifier: Apache-2.0
"""Transactions: messages that are seen when their producer says so, and questions to those that said nothing."""

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
"""How long one call waits for a question."""


class AsyncTransactions:
    """Transactions of a store."""

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
        """Send a message that nobody sees until its transaction is committed.

        `group` is the producer group, whose members are asked if nobody says how it ends: after 6 s, or
        `check_after_s` (whole seconds, up to 40 days). Sending it again with the same `unique_id` begins no other one.
        Use the transaction in a block, which commits it, or rolls it back if it ends with an exception. Raises
        ReputError, and ValueError or TypeError for a message that can't be encoded.
        """
        message = NewMessage(topic, body, tag, keys, properties or {}, queue_id, unique_id=unique_id)
        chunk, name = Encoder(makes_unique_ids=True).encode(half_message(message, group, seconds_of(check_after_s)))
        request = append_service_pb2.AppendRequest.FromString(chunk)
        await self._channels.run(Call(request))  # may be repeated: the id makes it one
        return AsyncTransaction(self._channels, name, group)

    async def commit(self, transaction_id: str, *, group: str = "") -> None:
        """Let the message of a transaction be seen, by its id or the offset id of its message. May be repeated.

        Raises NotFoundError, and FailedPreconditionError if it has ended in another way, or the store does not take its
        message. With `group` it must be of that producer group.
        """
        await self._end(transaction_id, group, is_committed=True)

    async def rollback(self, transaction_id: str, *, group: str = "") -> None:
        """Let the message of a transaction never be seen. As `commit` otherwise."""
        await self._end(transaction_id, group, is_committed=False)

    async def checks(self, *groups: str) -> "AsyncIterator[AsyncCheck]":
        """Yield transactions that somebody of these producer groups has to end, as they come, for ever.

        One that is not ended comes again, here or elsewhere. While Delivery is away it is asked again until it answers.
        Raises ReputError for a refusal that does not pass.
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
        """Yield the transactions that are open, those of one producer group or all, the oldest first."""
        request = transaction_service_pb2.ListTransactionsRequest(producer_group=group, page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(open_transaction, page.transactions))

    async def _end(self, transaction_id: str, group: str, *, is_committed: bool) -> None:
        how = transaction_service_pb2.RESOLUTION_COMMIT if is_committed else transaction_service_pb2.RESOLUTION_ROLLBACK
        request = transaction_service_pb2.EndTransactionRequest(
            transaction_id=transaction_id, producer_group=group, resolution=how
        )
        await self._channels.run(Call(request))


class AsyncTransaction:
    """A transaction that this producer began. A block with it commits it, or rolls it back after an exception.

    If the roll-back fails, the exception is still that of the block.
    """

    def __init__(self, channels: AsyncChannels, transaction_id: str, group: str) -> None:
        self.id, self.group = transaction_id, group
        self._transactions = AsyncTransactions(channels)

    async def commit(self) -> None:
        """Let its message be seen. May be repeated."""
        await self._transactions.commit(self.id, group=self.group)

    async def rollback(self) -> None:
        """Let its message never be seen. May be repeated."""
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
    """A transaction that somebody else began, and that a member of its producer group has to end."""

    def __init__(self, channels: AsyncChannels, transaction: OpenTransaction, message: Message) -> None:
        super().__init__(channels, transaction.id, transaction.group)
        self.transaction, self.message = transaction, message
