# SPDX-License-Identifier: Apache-2.0
"""A store for the console: topics, groups of both kinds that are behind, dead letters, and delayed messages."""

import json
from collections.abc import Sequence

from reput_client import Client, ConsumerOffset, NewMessage, SharePolicy

TOPIC_COUNT, GROUP_COUNT, DELAYED_COUNT, LETTER_COUNT = 40, 10, 200, 200
SENT_AT_ONCE = 10_000
KEY = "order-17"


def topic(number: int) -> str:
    """Return the name of a topic."""
    return f"orders-{number}"


def message(number: int) -> NewMessage:
    """Return a message of some 200 bytes."""
    body = json.dumps({"id": number, "customer": f"c-{number % 997}", "total": 19.9 + number % 100, "lines": [1, 2, 3]})
    return NewMessage(
        topic(number % TOPIC_COUNT), body.encode(), tag="eu" if number % 3 else "us", keys=f"order-{number}",
        properties={"region": "eu" if number % 3 else "us", "price": str(number % 100)},
    )  # fmt: skip


def fill(client: Client, count: int) -> None:
    """Append so many messages, and let groups read some of them."""
    for number in range(TOPIC_COUNT):
        client.topics.create(topic(number), read_queue_count=4, write_queue_count=4)
    with client.producer() as producer:
        for first in range(0, count, SENT_AT_ONCE):
            sent = [producer.send_message(message(number)) for number in range(first, min(first + SENT_AT_ONCE, count))]
            last = [one.result() for one in sent][-1]
        late = [NewMessage(topic(0), b"remind", keys=f"r-{at}", delay_s=86_400 + at) for at in range(DELAYED_COUNT)]
        [one.result() for one in [producer.send_message(one) for one in late]]
    client.query.wait_indexed(last)
    for number in range(GROUP_COUNT):
        places = [ConsumerOffset(topic(at), queue, 10) for at in range(4) for queue in range(4)]
        client.groups.commit(f"readers-{number}", places)
        client.share_groups.set(f"workers-{number}", SharePolicy(attempts_max=1, backoffs_s=(0.001,)))
        _bury(client, topic(number), f"workers-{number}", LETTER_COUNT // GROUP_COUNT)


def _bury(client: Client, name: str, group: str, count: int) -> None:
    buried = 0
    with client.share_consumer(name, group=group) as consumer:
        while buried < count:
            received: Sequence[object] = consumer.receive(count - buried, 5)
            consumer.bury(*received)  # type: ignore[arg-type]
            buried += len(received)
