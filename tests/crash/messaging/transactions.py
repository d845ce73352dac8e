# SPDX-License-Identifier: Apache-2.0
"""Transactions on the Python client: a producer begins them, and commits, rolls back or leaves each open.

Invariants: a message is in the history before it is sent; the producer repeats an end until Delivery answers. Callers:
a single event loop.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator

from reput_client import ReputError
from reput_client.aio import AsyncClient

from tests.crash.messaging.history import History, Sent
from tests.crash.messaging.members import AGAIN_S, now_ms

PRODUCER_GROUP = "shop"
NEVER_CHECKED_S = 24 * 3600
"""Delivery asks no producer how an open transaction ends."""
NOT_FOUND = "TRANSACTION_NOT_FOUND"
REFUSED = ("TRANSACTION_ENDED", NOT_FOUND)
PAUSE_S_MAX = 0.25


class Transactions:
    """Transactions of a producer. `wrong` has the answers that break a promise.

    `may_be_forgotten`: a failover may take the half message of a transaction, because the answer to `begin` promises no
    replication; then the end of the transaction is refused with NOT_FOUND.
    """

    def __init__(
        self,
        client: AsyncClient,
        history: History,
        chance: random.Random,
        topic: str,
        *,
        numbers: Iterator[int],
        may_be_forgotten: bool = False,
    ) -> None:
        self.wrong: list[str] = []
        self._client, self._history, self._chance, self._topic = client, history, chance, topic
        self._numbers, self._may_be_forgotten = numbers, may_be_forgotten

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Play transactions in turn until `is_over`. All ends are answered on return."""
        while not is_over():
            number = next(self._numbers)
            await self._play(Sent(f"transaction-{number}", self._topic, "transaction", now_ms()))

    async def _play(self, sent: Sent) -> None:
        self._history.sent[sent.name] = sent
        try:
            transaction = await self._client.transactions.begin(
                self._topic, sent.name.encode(), group=PRODUCER_GROUP, check_after_s=NEVER_CHECKED_S
            )
        except ReputError:
            sent.given_up_ms = now_ms()
            await asyncio.sleep(AGAIN_S)
            return
        sent.answered_ms = now_ms()
        await asyncio.sleep(self._chance.random() * PAUSE_S_MAX)
        sent.end = self._chance.choices(("commit", "rollback", ""), (6, 3, 1))[0]
        if sent.end:
            await self._end(sent, transaction.commit if sent.end == "commit" else transaction.rollback)

    async def _end(self, sent: Sent, end: Callable[[], Awaitable[None]]) -> None:
        sent.end_began_ms = now_ms()
        while sent.ended_ms is None:
            try:
                await end()
                sent.ended_ms = now_ms()
            except ReputError as error:
                if error.reason == NOT_FOUND and self._may_be_forgotten:
                    return
                if error.reason in REFUSED:
                    self.wrong.append(f"the {sent.end} of {sent.name} is refused: {error}")
                    return
                await asyncio.sleep(AGAIN_S)
