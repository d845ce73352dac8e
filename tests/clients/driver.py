# SPDX-License-Identifier: Apache-2.0
"""The driver of the Python client. README.md has the protocol."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from reput_client import Client, Durability, Message, NewMessage, ProducerOptions, ReputError, RetryPolicy, connect
from reput_client.core.types import SendResult

from tests.clients.python_abilities import ABILITIES, options_of

Request = Mapping[str, Any]
_client: Client | None = None
_sent: SendResult | None = None


def client() -> Client:
    """Return the connected client."""
    assert _client is not None, "connect comes first"
    return _client


def do_connect(request: Request) -> dict[str, Any]:
    """Connect anew."""
    global _client
    if _client is not None:
        _client.close()
    retries = request.get("retries")
    policy = {} if retries is None else {"retry": RetryPolicy(retries=retries)}
    _client = connect(**{name: value for name, value in request.items() if name not in ("do", "retries")}, **policy)
    return {}


def do_send(request: Request) -> dict[str, Any]:
    """Send a message."""
    names = ("tag", "keys", "properties", "queue_id", "sharding_key", "unique_id", "delay_level", "delay_s")
    message = NewMessage(
        request["topic"], request["body"].encode(), **{name: request[name] for name in names if name in request}
    )
    linger = {"linger_ms": request["linger_ms"]} if "linger_ms" in request else {}
    options = replace(options_of(request), durability=Durability[request.get("durability", "DEFAULT")], **linger)
    global _sent
    with client().producer(options) as producer:
        _sent = result = producer.send_message(message).result()
    told = {name: getattr(result, name) for name in ("queue_id", "queue_offset", "physical_offset", "store_time_ms")}
    return told | {
        "durability": result.durability.name,
        "unique_id": result.unique_id,
        "offset_message_id": result.offset_message_id,
    }


def do_send_many(request: Request) -> dict[str, Any]:
    """Send numbered messages."""
    names = ("linger_ms", "batch_size_bytes", "window_bytes")
    retry = {"retry": RetryPolicy(retries=request["retries"])} if "retries" in request else {}
    options = ProducerOptions(
        durability=Durability[request.get("durability", "DEFAULT")],
        **{name: request[name] for name in names if name in request},
        **retry,
    )
    end_s = time.monotonic() + request.get("seconds", 1e9)
    outcomes = []
    with client().producer(options) as producer:
        while len(outcomes) < request.get("count", 1 << 62) and time.monotonic() < end_s:
            index = len(outcomes)
            topic = request.get("bad_topics", {}).get(str(index), request["topic"])
            body = f"{request['prefix']}{index}".ljust(request.get("size_bytes", 0), ".").encode()
            outcomes.append(producer.send_message(NewMessage(topic, body, queue_id=request.get("queue_id"))))
            time.sleep(request.get("pause_ms", 0) / 1000)
        errors = [outcome.exception() for outcome in outcomes]
    stored = [outcome.result() for outcome, error in zip(outcomes, errors, strict=True) if error is None]
    return {
        "count": len(outcomes),
        "stored_count": len(stored),
        "failed": [[index, getattr(error, "reason", repr(error))] for index, error in enumerate(errors) if error],
        "last_queue_offset": max([result.queue_offset for result in stored if isinstance(result, SendResult)] or [-1]),
    }


def do_pull(request: Request) -> dict[str, Any]:
    """Read a queue once."""
    result = client().queues.pull(
        request["topic"],
        queue_id=request["queue_id"],
        queue_offset=request["queue_offset"],
        count=request.get("message_count_max", 0),
        tags=request.get("tags", "*"),
        where=request.get("where", ""),
        wait_s=request.get("wait_ms", 0) / 1000,
    )
    bounds = {name: getattr(result, f"{name}_queue_offset") for name in ("next", "min", "max")}
    return {
        "status": result.status.name,
        "bodies": bodies(result.messages),
        **{f"{name}_queue_offset": value for name, value in bounds.items()},
    }


def do_wait_indexed(request: Request) -> dict[str, Any]:
    """Wait for the message that was sent last."""
    assert _sent is not None, "send comes first"
    client().query.wait_indexed(_sent)
    return {}


def do_query_by_key(request: Request) -> dict[str, Any]:
    """Find messages by key."""
    return {"bodies": bodies(client().query.by_key(request["topic"], request["key"], **_span(request)))}


def do_query_by_keys(request: Request) -> dict[str, Any]:
    """Find messages by many keys."""
    found = list(client().query.by_keys(request["topic"], request["keys"], **_span(request)))
    for error in filter(None, (one.error for one in found)):
        raise error
    return {"keys": [one.key for one in found], "bodies": [bodies(one.messages) for one in found]}


def do_query_by_time(request: Request) -> dict[str, Any]:
    """Find messages by time."""
    found = client().query.by_time(request["topic"], queue_id=request.get("queue_id"), **_span(request))
    return {"bodies": bodies(found)}


def do_query_by_id(request: Request) -> dict[str, Any]:
    """Find a message by id."""
    message = client().query.by_id(request["id"], topic=request.get("topic", ""))
    names = (
        *("topic", "queue_id", "queue_offset", "physical_offset", "tag", "keys", "properties", "unique_id"),
        *("store_time_ms", "offset_message_id"),
    )
    return {"body": message.body.decode(), **{name: getattr(message, name) for name in names}}


def do_consume(request: Request) -> dict[str, Any]:
    """Consume this many messages."""
    names = ("group", "queue_ids", "start", "tags")
    end_s = time.monotonic() + request["timeout_s"]
    with client().consumer(request["topic"], **{name: request[name] for name in names if name in request}) as consumer:
        for queue_id, queue_offset in request.get("seek", {}).items():
            consumer.seek((request["topic"], int(queue_id)), queue_offset)
        taken: list[Message] = []
        while len(taken) < request["count"] and (left_s := end_s - time.monotonic()) > 0:
            if (message := consumer.poll(left_s)) is not None:
                taken.append(message)
        if request.get("commit"):
            consumer.commit()
        positions = {str(queue.queue_id): queue_offset for queue, queue_offset in consumer.positions().items()}
    return {"bodies": bodies(taken), "positions": positions}


def bodies(messages: Any) -> list[str]:
    """Return bodies as text, without the dots at their end."""
    return [message.body.decode().rstrip(".") for message in messages]


def _span(request: Request) -> dict[str, int]:
    return {name: request[f"{name}_ms"] for name in ("start", "end") if f"{name}_ms" in request}


def answer(request: Request) -> dict[str, Any]:
    """Carry out the request of a line."""
    name = request["do"]
    try:
        if name in ABILITIES:
            return {"ok": ABILITIES[name](client(), request)}
        do: Callable[[Request], dict[str, Any]] = globals()[f"do_{name}"]
        return {"ok": do(request)}
    except ReputError as error:
        told = {name: getattr(error, name) for name in ("reason", "metadata", "fields", "text")}
        return {"error": {"code": error.code.name, **told}}
    except (ValueError, TypeError) as error:
        return {"error": {"code": "LOCAL", "text": str(error)}}


def main() -> None:
    """Answer each line with a line."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
    if _client is not None:
        _client.close()


if __name__ == "__main__":
    main()
