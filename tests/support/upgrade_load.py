# SPDX-License-Identifier: Apache-2.0
"""A stage of a store that is opened by two revisions by turns: check all that earlier stages left, then add more.

`python tests/support/upgrade_load.py DIR STAGE`, in the tree of any revision: services and client are that tree's. It
uses only features of the earlier revision. DIR/expected.json has the bodies that later stages must find.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import reput_client

from tests.support.kept_store import append_numbered, bodies, opened, verify
from tests.support.patience import LIMIT_S

MESSAGE_COUNT = 800
QUEUE_COUNT = 4
BODY_SIZE_BYTES = 2000
FAR_S = 86_400.0
PURGED = "purged"
DRAIN_S = 180.0
"""Longer than a message is invisible, and the time to receive the rest."""


@dataclass
class Expected:
    """What the store has after the stages so far, by its bodies."""

    orders: list[list[str]] = field(default_factory=lambda: [[] for _ in range(QUEUE_COUNT)])
    read: list[str] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)
    buried: list[str] = field(default_factory=list)
    far: list[str] = field(default_factory=list)
    soon: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)
    is_purged: bool = False


def until(condition: Callable[[], bool], text: str) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, text
        time.sleep(0.05)


def texts(messages: Iterable[bytes]) -> list[str]:
    """Return the bodies without their padding."""
    return [body.decode().rstrip() for body in messages]


def pulled(client: reput_client.Client, queue_id: int) -> Iterator[bytes]:
    """Yield the bodies of a queue of orders, from its begin."""
    place, end = 0, client.queues.range("orders", queue_id).max_queue_offset
    while place < end:
        messages = client.queues.pull("orders", queue_id, place).messages
        assert [message.queue_offset for message in messages] == [*range(place, place + len(messages))]
        assert messages
        place += len(messages)
        yield from (message.body for message in messages)


def check(client: reput_client.Client, expected: Expected) -> None:
    """Check that messages, keys, dead letters, delays and transactions are those of earlier stages."""
    for queue_id, wanted in enumerate(expected.orders):
        assert texts(pulled(client, queue_id)) == wanted
        for text in wanted[:: MESSAGE_COUNT // 20]:
            assert texts(message.body for message in client.query.by_key("orders", text)) == [text]
    assert sorted(texts(letter.message.body for letter in client.dead_letters.list("workers"))) == expected.buried
    assert sorted(texts(delayed.message.body for delayed in client.delayed.list())) == expected.far
    until(lambda: len(bodies(client, "later")) >= len(expected.soon), "a delayed message is missing")
    assert sorted(texts(bodies(client, "later"))) == expected.soon
    assert sorted(transaction.id for transaction in client.transactions.list("shop")) == expected.open
    assert len(bodies(client, "imported")) == 3
    if expected.is_purged:
        assert bodies(client, PURGED) == []


def send(client: reput_client.Client, stage: int, expected: Expected) -> None:
    """Append messages to all queues of orders, and wait until they are indexed."""
    with client.producer() as producer:
        results = []
        for number in range(MESSAGE_COUNT):
            text, queue_id = f"{stage}-{number}", number % QUEUE_COUNT
            body = text.ljust(BODY_SIZE_BYTES).encode()
            results.append(producer.send("orders", body, queue_id=queue_id, keys=[text], tag=f"stage{stage}"))
            expected.orders[queue_id].append(text)
        client.query.wait_indexed([result.result() for result in results][-1])


def share(client: reput_client.Client, expected: Expected, count: int) -> None:
    """Settle messages of the group that shares: most are acknowledged, some come again, a few become dead letters."""
    with client.share_consumer("orders", group="workers") as shared:
        while count > 0:
            received = shared.receive(count=min(count, 50), wait_s=LIMIT_S)
            found = texts(delivered.message.body for delivered in received)
            assert received
            assert not {*found} & {*expected.acked, *expected.buried}
            shared.bury(received[0])
            shared.ack(*received[1:-4])
            shared.nack(*received[-4:-2], delay_s=0.0)
            expected.buried.append(found[0])
            expected.acked += found[1:-4]
            count -= 50
    expected.buried.sort()


def read(client: reput_client.Client, expected: Expected, count: int) -> None:
    """Read on with the group that keeps offsets, from where the stage before stopped."""
    with client.consumer("orders", group="readers", start="earliest") as consumer:
        for _ in range(count):
            message = consumer.poll(LIMIT_S)
            assert message is not None
            expected.read += texts([message.body])
        consumer.commit()
    assert len(set(expected.read)) == len(expected.read), "a committed message was read again"


def transact(client: reput_client.Client, stage: int, expected: Expected) -> None:
    """End two transactions of the stage before, and begin three."""
    if expected.open:
        committed, rolled_back, *_ = expected.open
        body = next(half for half in client.transactions.list("shop") if half.id == committed)
        client.transactions.commit(committed, group="shop")
        client.transactions.rollback(rolled_back, group="shop")
        assert body.topic == "paid"
        expected.paid.append(committed)
        expected.open = expected.open[2:]
    for number in range(3):
        client.transactions.begin("paid", b"%d-%d" % (stage, number), group="shop")
    until(lambda: len(list(client.transactions.list("shop"))) == len(expected.open) + 3, "transactions are missing")
    expected.open = sorted(transaction.id for transaction in client.transactions.list("shop"))
    queues = list(client.queues.list("paid"))
    assert sum(queue.max_queue_offset for queue in queues) == len(expected.paid)


def use_new_features(client: reput_client.Client, expected: Expected) -> None:
    """Use features of the newer revision alone, and check their effects when that revision comes back."""
    if not hasattr(client.topics, "purge"):
        return
    if expected.is_purged:
        assert client.topics.get("orders").retention_hours == 24
    client.topics.update("orders", retention_hours=24)
    client.topics.purge(PURGED)
    until(lambda: bodies(client, PURGED) == [], "a purged message is readable")
    expected.is_purged = True


def drain(client: reput_client.Client, expected: Expected) -> None:
    """Receive the rest: with the messages that were settled before, the group has each message.

    Messages that a stage left open come again when their time as invisible messages is over.
    """
    wanted = {text for queue in expected.orders for text in queue}
    end_s = time.monotonic() + DRAIN_S
    with client.share_consumer("orders", group="workers") as shared:
        while len(expected.acked) + len(expected.buried) < len(wanted):
            assert time.monotonic() < end_s, "a message is missing"
            received = shared.receive(count=50, wait_s=LIMIT_S)
            found = texts(delivered.message.body for delivered in received)
            assert not {*found} & {*expected.acked, *expected.buried}
            shared.ack(*received)
            expected.acked += found
    assert {*expected.acked, *expected.buried} == wanted


def delay(client: reput_client.Client, stage: int, expected: Expected) -> None:
    """Send messages that the next stage delivers, and a message that stays."""
    with client.producer() as producer:
        producer.send("later", b"%d-timed" % stage, queue_id=0, delay_s=5.0).result()
        producer.send("later", b"%d-level" % stage, queue_id=0, delay_level=2).result()  # five seconds
        producer.send("later", b"%d-far" % stage, queue_id=0, delay_s=FAR_S).result()
    expected.soon = sorted([*expected.soon, f"{stage}-timed", f"{stage}-level"])
    expected.far = sorted([*expected.far, f"{stage}-far"])
    until(lambda: len(list(client.delayed.list())) >= len(expected.far), "a delayed message is not listed")


def run(directory: Path, stage: int, *, is_last: bool) -> None:
    """Open the store with the services of the tree, check it, load it, and stop it in order."""
    file = directory / "expected.json"
    expected = Expected(**json.loads(file.read_text())) if file.exists() else Expected()
    with opened(directory) as client:
        if stage == 0:
            client.topics.create("orders", read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT)
            client.topics.create("later")
            with client.producer() as producer:
                producer.send(PURGED, b"gone", queue_id=0).result()
            append_numbered(client)
        else:
            check(client, expected)
        send(client, stage, expected)
        read(client, expected, MESSAGE_COUNT // 2)
        share(client, expected, MESSAGE_COUNT // 2)
        transact(client, stage, expected)
        use_new_features(client, expected)
        append_numbered(client)
        if is_last:
            drain(client, expected)
        delay(client, stage, expected)
    file.write_text(json.dumps(asdict(expected)))
    found = verify(directory)
    assert found.code == 0, found
    count = sum(map(len, expected.orders))
    print(f"stage {stage}: {count} messages, {len(expected.acked)} acknowledged, {len(expected.read)} read, verified")


def main() -> int:
    """Run a stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("stage", type=int)
    parser.add_argument("--last", action="store_true", help="receive the rest of the shared messages")
    args = parser.parse_args()
    run(args.directory, args.stage, is_last=args.last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
