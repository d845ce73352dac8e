# SPDX-License-Identifier: Apache-2.0
"""Shop: a program with a table of orders and an outbox, and the comparison of both with the store."""

import time
from collections import Counter
from collections.abc import Callable

from pytest_reput import Reput
from reput_outbox import Relay, RelaySettings
from reput_outbox.core.rows import State
from reput_outbox.sqlalchemy import Outbox, SqlDatabase
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, insert, select

METADATA = MetaData()
OUTBOX = Outbox(METADATA)
ORDERS = Table(
    "orders", METADATA, Column("id", Integer, primary_key=True), Column("buyer", String(40)), Column("number", Integer)
)
FAST = RelaySettings(poll_s=0.02, lease_s=1, retry_s=0.2, backoff_max_s=0.2)


class Shop:
    """The program. An order is a row of `orders` and a message with the buyer as its key."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.database = engine, SqlDatabase(engine, OUTBOX)
        METADATA.create_all(engine)

    def buy(self, topic: str, buyer: str, number: int, *, fails: bool = False) -> None:
        """Write an order and its message in a transaction, which rolls back if it `fails`."""
        with self.engine.connect() as connection, connection.begin() as transaction:
            connection.execute(insert(ORDERS).values(buyer=buyer, number=number))
            OUTBOX.add(connection, topic, f"{buyer} {number}".encode(), key=buyer)
            if fails:
                transaction.rollback()

    def orders(self) -> list[str]:
        """Return the committed orders as bodies of messages."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(ORDERS.c.buyer, ORDERS.c.number).order_by(ORDERS.c.id))
            return [f"{buyer} {number}" for buyer, number in rows]

    def relay(self, store: Reput, settings: RelaySettings = FAST) -> Relay:
        """Return a relay from this database to a store."""
        return Relay(self.database, settings, connect=lambda: store.connect(timeout_s=10))

    def count(self, *states: State) -> int:
        """Return the number of rows in these states."""
        counts = self.database.transact(lambda table: table.counts())
        return sum(counts[state] for state in states)

    def is_sent(self) -> bool:
        """Return whether no row waits."""
        return self.count(State.PENDING, State.ASSIGNED, State.REFUSED, State.BLOCKED) == 0


def until(condition: Callable[[], object], limit_s: float = 12) -> None:
    """Wait for a condition."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "the condition does not come true"
        time.sleep(0.01)


def bodies(store: Reput, topic: str) -> list[str]:
    """Return the bodies of all messages of a topic, each queue in order."""
    client = store.client()
    found = []
    for queue in client.queues.list(topic):
        offset = queue.min_queue_offset
        while offset < queue.max_queue_offset:
            pulled = client.queues.pull(topic, queue.queue_id, offset)
            found += [message.body.decode() for message in pulled.messages]
            offset = pulled.next_queue_offset
    return found


def check_once(wanted: list[str], found: list[str]) -> None:
    """Check that each order is one message, and that each buyer's are in order."""
    twice = [body for body, count in Counter(found).items() if count > 1]
    assert not twice, f"sent twice: {twice[:10]}"
    assert set(found) == set(wanted), (
        f"lost: {sorted(set(wanted) - set(found))[:10]}, never committed: {sorted(set(found) - set(wanted))[:10]}"
    )
    last: dict[str, int] = {}
    for body in found:
        buyer, _, number = body.partition(" ")
        assert int(number) > last.get(buyer, -1), f"{body} comes after {buyer} {last[buyer]}"
        last[buyer] = int(number)
