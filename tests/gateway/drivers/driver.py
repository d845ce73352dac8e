# SPDX-License-Identifier: Apache-2.0
"""The official client for Python as a driver of the table. Its environment has nothing of this project."""

import json
import sys
import time
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-not-found]


class Listener(MessageListener):  # type: ignore[misc]
    """Fails each body as often as `fail` says."""

    def __init__(self, fail: dict[str, int]) -> None:
        self.fail = fail
        self.events: list[dict[str, Any]] = []

    def consume(self, message: Any) -> Any:
        """Record a message."""
        told = described(message)
        left = self.fail.get(told["body"], 0)
        self.fail[told["body"]] = left - 1
        self.events.append({**told, "failed": left > 0, "time_ms": round(time.time() * 1000)})
        return ConsumeResult.FAILURE if left > 0 else ConsumeResult.SUCCESS


class Checker(TransactionChecker):  # type: ignore[misc]
    """Returns the end of a transaction that its producer has forgotten."""

    def check(self, message: Any) -> Any:
        """Return the end that is named in the message's body."""
        is_committed = message.body == b"commit when asked"
        return TransactionResolution.COMMIT if is_committed else TransactionResolution.ROLLBACK


def described(message: Any) -> dict[str, Any]:
    """Return the parts of a message that the table checks."""
    return {
        "body": message.body.decode(),
        "tag": message.tag or "",
        "keys": sorted(message.keys or ()),
        "properties": dict(message.properties or {}),
        "group": message.message_group or "",
        "attempt": message.delivery_attempt,
        "id": message.message_id,
    }


class Driver:
    """Carries out the requests."""

    def __init__(self) -> None:
        self.consumers: dict[tuple[str, str, str], Any] = {}
        self.producers: dict[str, Any] = {}
        self.messages: list[tuple[Any, Any]] = []

    def connect(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Keep the address of the gateway."""
        for client in (*self.producers.values(), *self.consumers.values()):
            client.shutdown()
        self.consumers, self.producers, self.messages = {}, {}, []
        credentials = Credentials(ask.get("key", ""), ask.get("secret", ""))
        self.configuration = ClientConfiguration(ask["endpoints"], credentials)
        self.tls = ask.get("tls", False)
        return {}

    def begin(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Send a message that is visible later, and end its transaction."""
        return self.send(ask)

    def send(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Send a message."""
        topic = ask["topic"]
        if topic not in self.producers:
            producer = Producer(self.configuration, (topic,), Checker(), tls_enable=self.tls)
            producer.startup()
            self.producers[topic] = producer
        message = Message()
        message.topic, message.body = topic, ask["body"].encode()
        if ask.get("tag"):
            message.tag = ask["tag"]
        if ask.get("keys"):
            message.keys = ask["keys"][0] if len(ask["keys"]) == 1 else tuple(ask["keys"])
        if ask.get("group"):
            message.message_group = ask["group"]
        if ask.get("deliver_s"):
            message.delivery_timestamp = ask["deliver_s"]  # this client takes seconds
        for name, value in ask.get("properties", {}).items():
            message.add_property(name, value)
        producer = self.producers[topic]
        if ask["do"] == "send":
            sent = producer.send(message)
            return {"id": sent.message_id, "recall_handle": sent.recall_handle}
        transaction = producer.begin_transaction()
        sent = producer.send(message, transaction)
        if ask["end"]:
            getattr(transaction, ask["end"])()
        return {"id": sent.message_id}

    def recall(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Recall a delayed message."""
        return {"id": self.producers[ask["topic"]].recall_message(ask["topic"], ask["recall_handle"])}

    def receive(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Receive messages."""
        name = ask["topic"], ask["consumer_group"], ask.get("tags", "*"), ask.get("sql", "")
        if name not in self.consumers:
            expression = FilterExpression(name[3], FilterType.SQL) if name[3] else FilterExpression(name[2])
            consumer = SimpleConsumer(self.configuration, name[1], {name[0]: expression}, 5, tls_enable=self.tls)
            consumer.startup()
            self.consumers[name] = consumer
        consumer = self.consumers[name]
        found = consumer.receive(ask["count"], ask["invisible_s"]) or []
        start = len(self.messages)
        self.messages += [(consumer, message) for message in found]
        places = [{"number": start + index, "handle": one.receipt_handle} for index, one in enumerate(found)]
        return {"messages": [{**described(one), **place} for one, place in zip(found, places, strict=True)]}

    def ack(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Settle a message."""
        consumer, message = self.messages[ask["number"]]
        consumer.ack(message)
        return {}

    def change(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Set the time for which a message belongs to this consumer."""
        consumer, message = self.messages[ask["number"]]
        consumer.change_invisible_duration(message, ask["invisible_s"])
        return {}

    def push(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Let a push consumer work until this many messages succeeded, or the time is over."""
        listener = Listener(dict(ask.get("fail", {})))
        subscription = {ask["topic"]: FilterExpression(ask.get("tags", "*"))}
        consumer = PushConsumer(self.configuration, ask["consumer_group"], listener, subscription, tls_enable=self.tls)
        consumer.startup()
        end_s = time.monotonic() + ask["seconds"]
        while time.monotonic() < end_s and sum(not one["failed"] for one in listener.events) < ask["count"]:
            time.sleep(0.1)
        time.sleep(ask.get("linger_s", 1))
        consumer.shutdown()
        return {"events": listener.events}


def main() -> None:
    """Answer each line with a line."""
    driver = Driver()
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            answer = {"ok": getattr(driver, ask["do"])(ask)}
        except Exception as error:  # noqa: BLE001 - the table judges
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
