# SPDX-License-Identifier: Apache-2.0
"""An order and its message in a single transaction: both are there, or neither. `python shop_sqlalchemy.py`.

The store is the one that the variables REPUT_CLIENT_* name, or the one on this machine (`reput up`).
"""

import os
import time

from reput_client import connect
from reput_outbox import Relay
from reput_outbox.sqlalchemy import Outbox, SqlDatabase
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The program's models."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    buyer: Mapped[str]


outbox = Outbox(Base.metadata)


def buy(session: Session, buyer: str) -> None:
    """Write an order, and a message that tells of it. The messages of a buyer are stored in order."""
    session.add(Order(buyer=buyer))
    outbox.add(session, "orders", f"an order of {buyer}".encode(), key=buyer)


def main() -> None:
    """Buy twice, and change our mind once; then print what the store has."""
    engine = create_engine(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))
    Base.metadata.create_all(engine)
    with Relay(SqlDatabase(engine, outbox)) as relay:
        for buyer in ("anna", "ben"):
            with Session(engine) as session, session.begin():
                buy(session, buyer)
        with Session(engine) as session:
            buy(session, "carl")
            session.rollback()
        while relay.metrics.sent_count < 2:
            time.sleep(0.01)
    with connect() as client, client.consumer("orders") as consumer:
        found = [consumer.poll(10), consumer.poll(10)]
    for body in sorted(message.body.decode() for message in found if message is not None):
        print(body)
    engine.dispose()


if __name__ == "__main__":
    main()
