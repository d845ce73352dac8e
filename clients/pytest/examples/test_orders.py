# SPDX-License-Identifier: Apache-2.0
"""Tests of a small program that keeps orders in Reput: pytest with pytest-reput installed runs this file as it is."""

import pytest
import reput_client
from pytest_reput import MemoryReput


def place(order: str, *, reminder_h: int) -> None:
    """Store an order, and a reminder for later. The program has no code for tests."""
    with reput_client.connect() as client, client.producer() as producer:
        stored = producer.send("orders", order.encode(), keys=[order])
        producer.send("reminders", order.encode(), delay_s=reminder_h * 3600).result()
        stored.result()


def due_reminders() -> list[str]:
    """Return the reminders that are due, and settle them."""
    with reput_client.connect() as client:
        client.share_groups.set("mailer", reput_client.SharePolicy())
        with client.share_consumer("reminders", group="mailer") as consumer:
            received = consumer.receive(wait_s=1)
            consumer.ack(*received)
            return [one.message.body.decode() for one in received]


def test_a_reminder_comes_after_two_hours(reput: MemoryReput) -> None:
    """Two hours pass in a moment."""
    place("O-17", reminder_h=2)
    assert due_reminders() == []
    reput.advance(hours=2)
    assert due_reminders() == ["O-17"]
    assert due_reminders() == []


def test_a_refused_order_is_an_error(reput: MemoryReput) -> None:
    """The store itself refuses the append."""
    reput.fail_next("append", "TOPIC_FORBIDDEN", topic="orders", permission="write")
    with pytest.raises(reput_client.ReputError, match="TOPIC_FORBIDDEN"):
        place("O-18", reminder_h=1)


def test_orders_survive_a_crash(reput: MemoryReput) -> None:
    """An acknowledged order is there after a power cut."""
    place("O-19", reminder_h=1)
    reput.restart(crash=True)
    (found,) = reput.client().query.by_key("orders", "O-19")
    assert found.body == b"O-19"
