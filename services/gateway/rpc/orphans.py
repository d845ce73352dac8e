# SPDX-License-Identifier: Apache-2.0
"""Orphans: asks about transactions that their producers have not ended. A client that publishes the topic is asked.

The question is sent on the client's stream. Any gateway may ask: Delivery gives each question to a single gateway.
"""

import asyncio
from collections.abc import Sequence

from reput.delivery.v1.transaction_service_pb2 import TransactionCheck

from libs.machine.loop import SupervisedLoop
from libs.requests.errors import PeerError
from services.gateway.engine.producers import Producers
from services.gateway.rpc.store.ports import Deliveries

WAIT_S = 1.0
"""How long a call waits for a question. The next call includes clients that have begun to publish meanwhile."""
TOPIC_COUNT_MAX = 1_000
CHECK_COUNT = 100


class Orphans:
    """The loop that asks producers. `start` it, `stop` it."""

    def __init__(self, delivery: Deliveries, producers: Producers) -> None:
        self._delivery, self._producers = delivery, producers
        self._turn = 0
        self._loop = SupervisedLoop(
            "orphans", self._ask, interval_ms=20, backoff_ms_max=2_000, expected_errors=(PeerError,)
        )

    def start(self) -> None:
        """Start the loop."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop the loop."""
        await self._loop.stop()

    async def _ask(self) -> None:
        topics = self._next_topics()
        if not topics:
            await asyncio.sleep(WAIT_S)
            return
        checks: Sequence[TransactionCheck] = await self._delivery.checks(topics, CHECK_COUNT, wait_s=WAIT_S)
        for check in checks:  # Delivery repeats an unanswered question later
            self._producers.ask(check.transaction.producer_group, check)

    def _next_topics(self) -> list[str]:
        topics = self._producers.topics()
        start = self._turn = self._turn if self._turn < len(topics) else 0
        self._turn += TOPIC_COUNT_MAX
        return topics[start : start + TOPIC_COUNT_MAX]
