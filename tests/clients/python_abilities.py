# SPDX-License-Identifier: Apache-2.0
"""The part of the Python driver whose abilities the clients of other languages lack. README.md has the protocol."""

from collections.abc import Callable, Mapping
from typing import Any

from reput_client import Client, NewMessage, ProducerOptions, SharePolicy
from reput_client.core.types import SendResult

Request = Mapping[str, Any]
RECEIVE_WAIT_S = 30.0
PLACE = ("queue_id", "queue_offset", "physical_offset")


def create_topic(client: Client, request: Request) -> dict[str, Any]:
    """Create a topic."""
    count = request["queue_count"]
    return _queue_counts(client.topics.create(request["topic"], read_queue_count=count, write_queue_count=count))


def update_topic(client: Client, request: Request) -> dict[str, Any]:
    """Change the queue counts of a topic."""
    count = request["queue_count"]
    return _queue_counts(client.topics.update(request["topic"], read_queue_count=count, write_queue_count=count))


def list_topics(client: Client, _: Request) -> dict[str, Any]:
    """Name all topics, in a single text."""
    return {"topics": " ".join(topic.name for topic in client.topics.list())}


def purge_topic(client: Client, request: Request) -> dict[str, Any]:
    """Take all messages of a topic away from readers."""
    client.topics.purge(request["topic"])
    return {}


def delete_topic(client: Client, request: Request) -> dict[str, Any]:
    """Delete a topic."""
    client.topics.delete(request["topic"])
    return {}


def write(client: Client, request: Request) -> dict[str, Any]:
    """Append a batch of a writer."""
    with client.writer(request["writer"], first_sequence=request["first_sequence"]) as writer:
        writer.append([NewMessage(request["topic"], body.encode(), queue_id=0) for body in request["bodies"]])
        written = writer.flush()
    return {"message_count": written.message_count, "repeated_message_count": written.repeated_message_count}


def send_once(client: Client, request: Request) -> dict[str, Any]:
    """Send a message under an id."""
    return _place(client.send_once(request["id"], NewMessage(request["topic"], request["body"].encode())))


def set_group(client: Client, request: Request) -> dict[str, Any]:
    """Set the policy of a sharing group."""
    backoffs_s = tuple(backoff_ms / 1000 for backoff_ms in request["backoffs_ms"])
    client.share_groups.set(request["group"], SharePolicy(attempts_max=request["attempts_max"], backoffs_s=backoffs_s))
    return {}


def receive(client: Client, request: Request) -> dict[str, Any]:
    """Receive a message as a member of a group, and settle it."""
    with client.share_consumer(request["topic"], group=request["group"]) as consumer:
        received = consumer.receive(1, wait_s=RECEIVE_WAIT_S)
        getattr(consumer, request["settle"])(*received)
    return {
        "bodies": [one.message.body.decode() for one in received],
        "attempts": [one.attempt for one in received],
    }


def list_dead_letters(client: Client, request: Request) -> dict[str, Any]:
    """Show the bodies of a group's dead letters."""
    return {"bodies": [letter.message.body.decode() for letter in client.dead_letters.list(request["group"])]}


def list_delayed(client: Client, request: Request) -> dict[str, Any]:
    """Return the ids of a topic's delayed messages."""
    return {"ids": [delayed.message_id for delayed in client.delayed.list(request["topic"])]}


def cancel_delayed(client: Client, request: Request) -> dict[str, Any]:
    """Cancel a delayed message."""
    client.delayed.cancel(request["topic"], request["id"])
    return {}


def begin_transaction(client: Client, request: Request) -> dict[str, Any]:
    """Send the message of a transaction."""
    begun = client.transactions.begin(request["topic"], request["body"].encode(), group=request["group"])
    return {"transaction_id": begun.id}


def end_transaction(client: Client, request: Request) -> dict[str, Any]:
    """Commit a transaction or roll it back."""
    getattr(client.transactions, request["end"])(request["id"])
    return {}


def options_of(request: Request) -> ProducerOptions:
    """Return the options of a producer that compresses, if the request asks for compression."""
    if "compression" not in request:
        return ProducerOptions(linger_ms=0)
    return ProducerOptions(linger_ms=0, compression=request["compression"], compression_threshold_bytes=1)


def _queue_counts(topic: Any) -> dict[str, Any]:
    return {name: getattr(topic, name) for name in ("read_queue_count", "write_queue_count")}


def _place(result: SendResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in PLACE}


ABILITIES: Mapping[str, Callable[[Client, Request], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        *(create_topic, update_topic, list_topics, purge_topic, delete_topic, write, send_once, set_group, receive),
        *(list_dead_letters, list_delayed, cancel_delayed, begin_transaction, end_transaction),
    )
}
