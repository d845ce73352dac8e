# SPDX-License-Identifier: Apache-2.0
"""ShardedDelivery: receives from all shards, and settles at the shard of each message, which its handle names.

Groups are the same at all shards; each shard's Delivery keeps the group's state of the shard's queues.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import cycle
from typing import TypeVar

from reput.delivery.v1.delivery_service_pb2 import ReceivedMessage, SettleEntry
from reput.delivery.v1.group_service_pb2 import GroupPolicy
from reput.delivery.v1.transaction_service_pb2 import TransactionCheck

from libs.machine.clock import Clock
from libs.requests.errors import PeerError
from services.gateway.engine.shards.names import with_shard, without_shard
from services.gateway.errors import Refused
from services.gateway.rpc.store.delivery_client import DeliveryClient
from services.gateway.rpc.store.ports import Settled

R = TypeVar("R")
WAIT_S = 0.25
"""How long a receive waits at a shard before it asks the next. A new message of a shard is found after a round."""


class ShardedDelivery:
    """The Deliveries of the shards, by the names of the shards. All calls raise PeerError."""

    def __init__(self, deliveries: Mapping[str, DeliveryClient], clock: Clock) -> None:
        self._deliveries, self._clock = deliveries, clock
        self._starts = cycle(range(len(deliveries)))
        """The shard that the next call asks first."""

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        broker: str = "",
        count: int,
        invisible_ms: int | None,
        tags: str,
        where: str,
        wait_s: float,
        attempt_id: str,
    ) -> Sequence[ReceivedMessage]:
        """Return messages of a shard, or of the first shard that has some if `broker` is no shard.

        A shard that is away does not hold up the others. Its error is raised if no shard answers.
        """

        async def ask(shard: str, wait_s: float) -> Sequence[ReceivedMessage]:
            messages = await self._deliveries[shard].receive(
                group,
                topic,
                count=count,
                invisible_ms=invisible_ms,
                tags=tags,
                where=where,
                wait_s=wait_s,
                attempt_id=attempt_id,
            )
            for message in messages:
                message.handle = with_shard(shard, message.handle)
            return messages

        if broker in self._deliveries:
            return await ask(broker, wait_s)
        return await self._first_of(ask, wait_s)

    async def _first_of(
        self, ask: Callable[[str, float], Awaitable[Sequence[ReceivedMessage]]], wait_s: float
    ) -> Sequence[ReceivedMessage]:
        """Ask all shards in turn, first without a wait, until a shard has messages or the wait is over."""
        end_s, count = self._clock.monotonic_s() + wait_s, len(self._deliveries)
        start, names = next(self._starts), list(self._deliveries)
        away: dict[str, PeerError] = {}
        for asked_count, shard in enumerate(cycle(names[start:] + names[:start])):
            left_s = max(end_s - self._clock.monotonic_s(), 0.0)
            shard_wait_s = min(WAIT_S, left_s) if asked_count >= count else 0.0
            try:
                if messages := await ask(shard, shard_wait_s):
                    return messages
                away.pop(shard, None)
            except PeerError as error:
                away[shard] = error
                if len(away) == count:
                    raise
                await asyncio.sleep(shard_wait_s)
            if left_s <= 0 and asked_count + 1 >= count:
                break
        return ()

    async def settle(self, entries: Sequence[SettleEntry]) -> list[Settled]:
        """Settle messages by entries, at the shard of each. A shard that is away fails its entries alone."""

        async def settle(shard: str, own: Sequence[SettleEntry]) -> Sequence[Settled]:
            return await self._deliveries[shard].settle(own)

        return await self._by_shard([_Entry(self._place(entry.handle), entry) for entry in entries], settle)

    async def ack(self, handles: Sequence[str]) -> Sequence[Settled]:
        """Acknowledge messages, each at its shard, together with other callers' entries."""

        async def ack(shard: str, own: Sequence[SettleEntry]) -> Sequence[Settled]:
            return await self._deliveries[shard].ack([entry.handle for entry in own])

        entries = [_Entry(self._place(handle), SettleEntry(handle=handle)) for handle in handles]
        return await self._by_shard(entries, ack)

    async def change(self, entry: SettleEntry) -> str:
        """Change a message's invisible time. Returns its handle from now on, "" for none. Raises Refused, too."""
        shard, own = self._known(entry)
        handle = await self._deliveries[shard].change(own)
        return with_shard(shard, handle) if handle else ""

    async def bury(self, entry: SettleEntry) -> None:
        """Make a message a dead letter. Raises Refused, too."""
        shard, own = self._known(entry)
        await self._deliveries[shard].bury(own)

    async def renew(self, handles: Sequence[str], invisible_s: float) -> Mapping[str, bool]:
        """Return for each handle whether its message is invisible for `invisible_s` from now on.

        The error of a shard is raised after the other shards have renewed their messages.
        """
        by_shard: dict[str, list[str]] = {}
        for handle in handles:
            shard, own = self._place(handle)
            by_shard.setdefault(shard, []).append(own)
        by_shard.pop("", None)
        renewing = [self._deliveries[shard].renew(own, invisible_s) for shard, own in by_shard.items()]
        found: dict[str, bool] = {}
        for shard, outcome in zip(by_shard, await asyncio.gather(*renewing, return_exceptions=True), strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            found |= {with_shard(shard, handle): is_renewed for handle, is_renewed in outcome.items()}
        return dict.fromkeys(handles, False) | found

    async def end_transaction(self, name: str, producer_group: str, *, is_committed: bool) -> None:
        """Commit or roll back a transaction, at the shard that its id names, else at the shard that knows it."""
        shard, own = self._place(name)
        if shard:
            await self._deliveries[shard].end_transaction(own, producer_group, is_committed=is_committed)
        else:
            await self._anywhere(
                lambda one: one.end_transaction(name, producer_group, is_committed=is_committed),
                unless="TRANSACTION_NOT_FOUND",
            )

    async def checks(self, producer_groups: Sequence[str], count: int, *, wait_s: float) -> Sequence[TransactionCheck]:
        """Return transactions of all shards about which a producer has to be asked. A shard that is away has none."""
        asking = [one.checks(producer_groups, count, wait_s=wait_s) for one in self._deliveries.values()]
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        found: list[TransactionCheck] = []
        for shard, outcome in zip(self._deliveries, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                continue
            for check in outcome:
                check.transaction.transaction_id = with_shard(shard, check.transaction.transaction_id)
            found += outcome
        if not found:
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
        return found

    async def cancel(self, topic: str, message_id: str, *, broker: str = "") -> None:
        """Cancel a message that waits for its delivery time, at its shard, else at the shard that knows it."""
        if broker in self._deliveries:
            await self._deliveries[broker].cancel(topic, message_id)
        else:
            await self._anywhere(lambda one: one.cancel(topic, message_id), unless="DELAYED_NOT_FOUND")

    async def policy(self, group: str) -> GroupPolicy:
        """Return the policy of a group, of the first shard that answers."""
        return await self._anywhere(lambda one: one.policy(group))

    async def _anywhere(self, call: Callable[[DeliveryClient], Awaitable[R]], *, unless: str = "") -> R:
        """Return the answer of the first shard that gives one.

        If all fail, the error that is raised is an error other than the reason `unless`, if there is any: a shard that
        is away may know the answer.
        """
        errors: list[PeerError] = []
        for one in self._deliveries.values():
            try:
                return await call(one)
            except PeerError as error:
                errors.append(error)
        raise next((error for error in errors if error.reason != unless), errors[0])

    async def _by_shard(
        self,
        entries: Sequence["_Entry"],
        settle: Callable[[str, Sequence[SettleEntry]], Awaitable[Sequence[Settled]]],
    ) -> list[Settled]:
        """Settle entries at their shards at the same time, and return the outcomes in the order of the entries."""
        outcomes: list[Settled] = [_unknown()] * len(entries)
        by_shard: dict[str, list[int]] = {}
        for at, entry in enumerate(entries):
            if entry.shard:
                by_shard.setdefault(entry.shard, []).append(at)

        async def settle_some(shard: str, places: Sequence[int]) -> None:
            try:
                found = await settle(shard, [entries[at].own for at in places])
            except PeerError as error:
                found = [error] * len(places)
            for at, outcome in zip(places, found, strict=True):
                outcomes[at] = with_shard(shard, outcome) if isinstance(outcome, str) and outcome else outcome

        await asyncio.gather(*(settle_some(shard, places) for shard, places in by_shard.items()))
        return outcomes

    def _place(self, text: str) -> tuple[str, str]:
        return without_shard(text, self._deliveries)

    def _known(self, entry: SettleEntry) -> tuple[str, SettleEntry]:
        """Return the shard of an entry, and the entry for it. Raises Refused."""
        found = _Entry(self._place(entry.handle), entry)
        if not found.shard:
            raise _unknown()
        return found.shard, found.own


class _Entry:
    """An entry for its shard: with the handle that the shard knows."""

    __slots__ = ("own", "shard")

    def __init__(self, place: tuple[str, str], entry: SettleEntry) -> None:
        self.shard, handle = place
        self.own = SettleEntry()
        self.own.CopyFrom(entry)
        self.own.handle = handle


def _unknown() -> Refused:
    return Refused("INVALID_RECEIPT_HANDLE", "the receipt handle names no shard that this gateway knows")
