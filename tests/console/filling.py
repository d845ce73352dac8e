# SPDX-License-Identifier: Apache-2.0
"""Fills a store for the console: traffic, groups that are behind, dead letters, hostile text in each field."""

import json

import reput_client
from reput_client import ConsumerOffset, NewMessage, ProducerOptions, SharePolicy

SCRIPT = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
HOSTILE = f"{SCRIPT}\"'`{{{{7*7}}}}\u202eevil\x07\x1b[31m\x7f"
LONG_NAME = "a-topic_with-a_name-of-all-characters_%7C|09_" + "x" * 80
KEY = "order-17"
LARGE_BYTES = 1 << 20
DELAYED_COUNT, TRANSACTION_COUNT = 60, 2


def fill(client: reput_client.Client, *, count: int = 200) -> None:
    """Append messages and move groups."""
    for name in ("orders", "payments", "hostile", LONG_NAME):
        client.topics.create(name, read_queue_count=2, write_queue_count=2)
    with client.producer(ProducerOptions(compression="zlib", compression_threshold_bytes=2_000)) as producer:
        for at in range(count):
            body = json.dumps({"id": at, "customer": f"c-{at % 17}", "total": 19.90 + at, "items": [1, 2, at]})
            producer.send_message(
                NewMessage(
                    "orders", body.encode(), tag="eu" if at % 3 else "us", keys=(f"order-{at}", f"c-{at % 17}"),
                    properties={"price": str(at), "region": "eu" if at % 3 else "us"},
                )
            )  # fmt: skip
        producer.send_message(NewMessage("payments", b"paid " * 1_000, tag="paid", keys=KEY))
        producer.send_message(NewMessage("payments", bytes(range(256)), keys="binary"))
        producer.send_message(NewMessage("payments", ("ä" * (LARGE_BYTES // 2)).encode(), keys="large"))
        producer.send_message(NewMessage("payments", b"", keys="empty"))
        producer.send_message(NewMessage(LONG_NAME, HOSTILE.encode(), keys="long"))
        producer.send_message(
            NewMessage(
                "hostile", HOSTILE.encode(), tag=HOSTILE.replace("|", ""),
                keys=(HOSTILE.replace(" ", "_"), "hostile-key"), properties={HOSTILE.replace(" ", ""): HOSTILE},
            )
        )  # fmt: skip
        outcome = producer.send_message(
            NewMessage("hostile", json.dumps({HOSTILE: [HOSTILE, 1.10]}).encode(), keys="json")
        )
        last = outcome.result()
    client.query.wait_indexed(last)
    client.groups.commit("readers", [ConsumerOffset("orders", 0, 20), ConsumerOffset("orders", 1, 10)])
    client.share_groups.set("billing", SharePolicy(attempts_max=1, backoffs_s=(0.001,)))
    client.share_groups.set("paused", SharePolicy(is_paused=True, is_ordered=True))
    wait_for_their_time(client)
    bury(client, "orders", 3)
    bury(client, "hostile", 2)


def wait_for_their_time(client: reput_client.Client) -> None:
    """Append delayed messages, a day ahead and more than a page shows, and begin transactions that stay open."""
    client.topics.create("reminders", read_queue_count=1, write_queue_count=1)
    with client.producer() as producer:
        for at in range(DELAYED_COUNT):
            message = NewMessage("reminders", f"remind {at}".encode(), keys=f"reminder-{at}", delay_s=86_400 + at)
            last = producer.send_message(message)
        producer.send_message(NewMessage("reminders", HOSTILE.encode(), keys=HOSTILE.replace(" ", "_"), delay_s=86_000))
        last.result()
    for at in range(TRANSACTION_COUNT):
        client.transactions.begin("orders", b"half", group="shop", keys=f"half-{at}", check_after_s=86_400)


def bury(client: reput_client.Client, topic: str, count: int) -> None:
    """Let messages of a topic become dead letters of the group `billing`."""
    buried = 0
    with client.share_consumer(topic, group="billing") as consumer:
        while buried < count:
            received = consumer.receive(count - buried, 5)
            consumer.bury(*received)
            buried += len(received)
