# SPDX-License-Identifier: Apache-2.0
"""Messages that are read as records, and as messages, from a real store: they are equal, by every way to read."""

import pytest
import reput_client
from reput_client import Message, NewMessage, ProducerOptions, SendResult
from reput_client.core import speedups

from clients.python.tests import compiled
from clients.python.tests.support import LIMIT_S

pytestmark = pytest.mark.e2e
TOPIC = "both-forms"
BODIES = [b"", b"x", "Größe 订单 😀".encode(), bytes(range(256)) * 100, b"compressed " * 5_000, bytes(1 << 20)]
EXTRA: list[dict[str, object]] = [
    {}, {"tag": "A"}, {"keys": ("every", "k 1".replace(" ", "-"))}, {"keys": "every", "properties": {"名": "значение"}},
    {"keys": "every", "tag": "B", "sharding_key": "s", "flag": -5, "born_time_ms": 1},
]  # fmt: skip


def read(client: reput_client.Client, ids: list[str], count: int) -> dict[str, list[Message]]:
    """The messages by every way to read, in the order of their places."""
    found: dict[str, list[Message]] = {"time": list(client.query.by_time(TOPIC))}
    found["key"] = list(client.query.by_key(TOPIC, "every", page_size=3))
    found["keys"] = [message for one in client.query.by_keys(TOPIC, ["every", "k-1"]) for message in one.messages]
    found["id"] = [client.query.by_id(one) for one in ids]
    found["pull"] = []
    for queue in client.queues.list(TOPIC):
        found["pull"] += client.queues.pull(TOPIC, queue.queue_id, 0, count=4096, size_bytes=8 << 20).messages
    with client.consumer(TOPIC) as consumer:
        found["consumer"] = []
        while len(found["consumer"]) < count:
            found["consumer"] += consumer.poll_many(7, timeout_s=LIMIT_S)
    return {way: sorted(messages, key=lambda message: message.physical_offset) for way, messages in found.items()}


def test_both_forms(client: reput_client.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of all sizes, compressed ones too, and properties of many languages: equal fields in both forms."""
    messages = [NewMessage(TOPIC, body, **extra) for body in BODIES for extra in EXTRA]  # type: ignore[arg-type]
    with client.producer(ProducerOptions(compression="zlib")) as producer:
        outcomes = producer.send_batch(messages).result(LIMIT_S)
    sent = [one for one in outcomes if isinstance(one, SendResult)]
    assert len(sent) == len(messages)
    client.query.wait_indexed(max(sent, key=lambda one: one.physical_offset))
    ids = [one.offset_message_id for one in sent]
    monkeypatch.setattr(speedups, "RECORDS", None)
    plain = read(client, ids, len(sent))
    monkeypatch.setattr(speedups, "RECORDS", compiled.part("_records"))
    found = read(client, ids, len(sent))
    assert found == plain
    assert found["consumer"] == found["time"] == found["pull"] == found["id"]
    assert len(found["key"]) == len(BODIES) * 3
    bodies = {one.physical_offset: message.body for one, message in zip(sent, messages, strict=True)}
    for way in found.values():
        for message in way:
            assert message.body == bodies[message.physical_offset]
            assert message.properties == next(one for one in plain["id"] if one == message).properties
