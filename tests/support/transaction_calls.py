# SPDX-License-Identifier: Apache-2.0
"""Calls of producers with transactions to the engine of Delivery over a store in memory."""

from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.transactions.transactions import Transactions
from tests.support.memory_delivery import MemoryStore, engine_of
from tests.support.patience import LIMIT_S

TOPIC = "t"
FIRST_MS, INTERVAL_MS = 6_000, 30_000
"""Times until the first check of a transaction, and between its checks."""


async def of(owner: JournalOwner) -> Transactions:
    """The transactions of the process that delivers."""
    return (await engine_of(owner)).transactions


def seen(store: MemoryStore, topic: str = TOPIC) -> list[str]:
    """The messages that consumers see."""
    return [one.message for queue in store.queues(topic) for one in queue]


async def asked(subject: Transactions, *groups: str, wait_s: float = LIMIT_S) -> list[str]:
    """The transactions about which a member of these groups is asked."""
    return [check.half.id for check in await subject.checks(groups or ["p"], 10, wait_s=wait_s)]
