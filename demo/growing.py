# SPDX-License-Identifier: Apache-2.0
"""A second shard: while flights arrive, a store joins, and the topic's queues are spread over both and split.

The flights go through the gateway by RocketMQ's protocol, with the flight number as their key, and an ordered group
receives them. Invariant: a caller sends the flights of a key one after the other, each until it is acknowledged, so
each flight must be received, and the flights of a key in their order.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from demo.cluster import NO_PROXY
from demo.comparisons import Comparisons
from demo.load import QUEUE_COUNT, LoadFailed
from demo.report import Report
from demo.shards import NAMES, Shards
from demo.source import TOPIC, Source
from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2 as wire

FLIGHT_COUNT = 6_000
GROUP, CALLER_COUNT, BATCH_COUNT = "planners", 8, 32
METADATA = (("x-mq-client-id", "demo"),)
AGAIN_S, ANSWER_S, INVISIBLE_S, PATIENCE_S = 0.05, 10.0, 60, 120.0
CHANNEL = (*NO_PROXY, ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 300))


@dataclass(slots=True)
class Flown:
    """The sends of all callers."""

    on_stored: Callable[[int], None]
    stored_count: int = 0
    repeated_rows: set[int] = field(default_factory=set)
    """Flights that were sent again, and may be stored twice."""
    longest_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, row: int, seconds: float, send_count: int) -> None:
        """Records a flight that is acknowledged."""
        with self._lock:
            self.stored_count += 1
            self.longest_s = max(self.longest_s, seconds)
            if send_count > 1:
                self.repeated_rows.add(row)
        self.on_stored(1)


class Protocol:
    """Calls of RocketMQ's protocol at a gateway."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def send(self, row: int, key: str, body: bytes) -> bool:
        """Sends a flight. Returns whether it is acknowledged."""
        system = wire.SystemProperties(
            message_id=f"01{row:032X}",
            body_encoding=wire.ENCODING_IDENTITY,
            message_type=wire.MESSAGE_TYPE_FIFO,
            message_group=key,
            born_host="demo",
        )
        message = wire.Message(topic=wire.Resource(name=TOPIC), body=body, system_properties=system)
        try:
            answer = self._call("SendMessage", wire.SendMessageRequest(messages=[message]))
        except grpc.RpcError:
            return False
        return bool(answer.status.code == wire.CODE_OK)

    def receive(self) -> list[wire.Message]:
        """Receives and acknowledges flights. Returns none if none arrive within some seconds."""
        request = wire.ReceiveMessageRequest(
            group=wire.Resource(name=GROUP),
            message_queue=wire.MessageQueue(topic=wire.Resource(name=TOPIC)),
            batch_size=BATCH_COUNT,
            invisible_duration=Duration(seconds=INVISIBLE_S),
            long_polling_timeout=Duration(seconds=1),
        )
        stub = self._channel.unary_stream(
            f"/{SERVED_AS}/ReceiveMessage",
            wire.ReceiveMessageRequest.SerializeToString,
            wire.ReceiveMessageResponse.FromString,
        )
        parts = list(stub(request, metadata=METADATA, timeout=ANSWER_S))
        found = [part.message for part in parts if part.HasField("message")]
        if found:
            handles = [one.system_properties.receipt_handle for one in found]
            entries = [wire.AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles]
            names = {"group": wire.Resource(name=GROUP), "topic": wire.Resource(name=TOPIC)}
            answer = self._call("AckMessage", wire.AckMessageRequest(entries=entries, **names))
            if answer.status.code != wire.CODE_OK:
                raise LoadFailed(f"flights can't be acknowledged: {answer.status.message}")
        return found

    def _call(self, method: str, request: Any) -> Any:
        kind = getattr(wire, f"{method}Response")
        stub = self._channel.unary_unary(f"/{SERVED_AS}/{method}", type(request).SerializeToString, kind.FromString)
        return stub(request, metadata=METADATA, timeout=ANSWER_S)


def run(source: Source, comparisons: Comparisons, directory: Path, report: Report) -> None:
    """Runs the chapter over new stores below a directory. Raises ServiceFailed and LoadFailed."""
    source = source.first(FLIGHT_COUNT)
    with Shards(directory, lambda command: report.line(f"  {command}")) as shards:
        log = shards.stores["a"].target("commitlog")
        report.line(f"  serving: the store a, and a gateway at {shards.gateway.target('gateway')}")
        queues = ["--read-queues", str(QUEUE_COUNT), "--write-queues", str(QUEUE_COUNT)]
        shards.reput("--commitlog", log, "topics", "create", TOPIC, *queues)
        with grpc.insecure_channel(shards.gateway.target("gateway"), CHANNEL) as channel:
            protocol = Protocol(channel)
            with report.progress_bar("send", len(source)) as on_stored:
                flown = send_all(protocol, source, on_stored, lambda: grow(shards, report))
            report.line(
                f"  {flown.stored_count:,} flights are acknowledged; the longest send took {flown.longest_s:.1f} s, "
                f"{len(flown.repeated_rows)} were sent again"
            )
            for name in NAMES:
                at = shards.stores[name].target("delivery")
                shards.reput("--delivery", at, "groups", "set", GROUP, "--ordered", "--from-beginning")
            with report.progress_bar("receive", len(source)) as on_received:
                rows = receive_all(protocol, source, on_received)
        compare(source, rows, flown, comparisons)
        places = json.loads("[" + ",".join(shards.reput("shards", "topic", TOPIC, "--json").splitlines()) + "]")
        counts = {name: sum(place["messages"] for place in places if place["shard"] == name) for name in NAMES}
        shown = ", ".join(f"{count:,} at {name}" for name, count in counts.items())
        comparisons.equal("flights that both shards hold", sum(counts.values()), len(rows), shown)
        comparisons.equal(
            "shards with flights", [name for name in NAMES if counts[name]], list(NAMES), " and ".join(NAMES)
        )


def grow(shards: Shards, report: Report) -> None:
    """Lets the second store join, spreads the topic over both, and splits a queue."""
    started = time.monotonic()
    shards.join()
    report.line(f"  the store b has joined, {time.monotonic() - started:.1f} s later")
    shards.reput("shards", "spread", TOPIC)
    shards.reput("shards", "split", TOPIC, str(QUEUE_COUNT))


def send_all(
    protocol: Protocol, source: Source, on_stored: Callable[[int], None], in_the_middle: Callable[[], None]
) -> Flown:
    """Sends all flights by several callers, each with keys of its own. The last third follows the change."""
    flown, changed = Flown(on_stored), threading.Event()

    def send(caller: int) -> None:
        for row, key in enumerate(source.flight_keys):
            if hash(key) % CALLER_COUNT == caller:
                if row >= 2 * len(source) // 3:
                    changed.wait()
                _send_one(protocol, source, row, flown)

    with ThreadPoolExecutor(CALLER_COUNT) as pool:
        sending = [pool.submit(send, caller) for caller in range(CALLER_COUNT)]
        try:
            while flown.stored_count < len(source) // 5 and not any(call.done() for call in sending):
                time.sleep(AGAIN_S)
            in_the_middle()
        finally:
            changed.set()
        for call in sending:
            call.result()
    return flown


def _send_one(protocol: Protocol, source: Source, row: int, flown: Flown) -> None:
    started, send_count = time.monotonic(), 1
    while not protocol.send(row, source.flight_keys[row], source.bodies[row]):
        if time.monotonic() - started > PATIENCE_S:
            raise LoadFailed(f"flight {row} is not acknowledged after {PATIENCE_S:.0f} s")
        send_count += 1
        time.sleep(AGAIN_S)
    flown.note(row, time.monotonic() - started, send_count)


def receive_all(protocol: Protocol, source: Source, on_received: Callable[[int], None]) -> list[int]:
    """Receives until each flight has arrived and no more arrive. Returns the rows as they arrived."""
    rows: list[int] = []
    left, last_s = set(range(len(source))), time.monotonic()
    while time.monotonic() - last_s < PATIENCE_S:
        found = [source.row_by_body.get(one.body, -1) for one in protocol.receive()]
        if not found and not left:
            return rows
        if found:
            last_s = time.monotonic()
        on_received(len(left.intersection(found)))
        left.difference_update(found)
        rows += found
    raise LoadFailed(f"{len(left)} flights did not arrive within {PATIENCE_S:.0f} s")


def compare(source: Source, rows: list[int], flown: Flown, comparisons: Comparisons) -> None:
    """Compares the received flights with the source: each is there, and the flights of a key are in order."""
    firsts = list(dict.fromkeys(rows))
    comparisons.equal("flights that the group received", sorted(firsts), list(range(len(source))), f"{len(firsts):,}")
    twice = [row for row, count in Counter(rows).items() if count > 1 and row not in flown.repeated_rows]
    comparisons.equal("flights that were sent once and came twice", twice, [], f"{len(twice)}")
    last: dict[str, int] = {}
    early = []
    for row in firsts:
        key = source.flight_keys[row]
        if row < last.get(key, -1):
            early.append(row)
        last[key] = max(row, last.get(key, -1))
    comparisons.equal("flights of a flight number before an earlier flight", early, [], f"0 of {len(last):,} numbers")
