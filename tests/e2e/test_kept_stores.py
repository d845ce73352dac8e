# SPDX-License-Identifier: Apache-2.0
"""Stores of earlier revisions: this revision opens each of them, and finds all that was answered."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import reput_client

from tests.support.kept_store import BODIES, STORES, append_numbered, bodies, opened, unpack, verify
from tests.support.patience import LIMIT_S

ARCHIVES = sorted(STORES.glob("*.tar.xz"))


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_there_are_kept_stores() -> None:
    """At least the store of the first kept revision is there."""
    assert ARCHIVES


def check_delayed(client: reput_client.Client) -> None:
    """Check that each delayed message is delivered once, also those that were delivered before the store was kept."""
    with client.producer() as producer:
        producer.send("later", b"next", queue_id=0, delay_level=1).result()
    until(lambda: {b"level", b"timed", b"next"} <= set(bodies(client, "later")))
    delivered = bodies(client, "later")
    assert len(delivered) == len(set(delivered))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_a_kept_store_opens(archive: Path, tmp_path: Path) -> None:
    """Messages, positions, deliveries, dead letters, delays, the open transaction and the writer are all known."""
    unpack(archive, tmp_path)
    assert verify(tmp_path).code == 0
    with opened(tmp_path) as client:
        assert bodies(client, "kept") == BODIES
        assert sorted(message.body for message in client.query.by_key("kept", "k")) == BODIES
        with client.consumer("kept", group="readers") as consumer:
            message = consumer.poll(LIMIT_S)
            assert message is not None
            assert message.body == b"m2"
        with client.share_consumer("kept", group="workers") as shared:
            received = shared.receive(count=10, wait_s=LIMIT_S)
            assert [(one.message.body, one.attempt) for one in received] == [(b"m2", 2), (b"m4", 2)]
            shared.ack(*received)
        assert [letter.message.body for letter in client.dead_letters.list("workers")] == [b"m3"]
        check_delayed(client)
        (transaction,) = client.transactions.list("shop")
        assert [queue for queue in client.queues.list("paid") if queue.max_queue_offset] == []
        client.transactions.commit(transaction.id, group="shop")
        until(lambda: sum(queue.max_queue_offset for queue in client.queues.list("paid")) == 1)
        append_numbered(client)
        assert bodies(client, "imported") == [b"0", b"1", b"2"]
    assert verify(tmp_path).code == 0
