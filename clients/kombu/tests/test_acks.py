# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements on their way to the store: few calls, none lost by a close, an end or an outage, and a bound."""

import subprocess
import sys
import time

import kombu
import pytest
from kombu import Queue
from kombu_reput import acks
from kombu_reput.store import Store, Verb
from pytest_reput import MemoryReput
from reput_client import Received

from clients.kombu.tests.test_transport import LIMIT_S, Connect, consume, nothing_comes, publish, take, topic_of

COUNT = 100
PROGRAM = """
import os, sys, kombu, kombu_reput
connection = kombu.Connection(sys.argv[1], transport_options={"ack_delay_s": 1})
channel = connection.channel()
if sys.argv[2] == "forked":
    while (message := channel.basic_get("ends")) is None:
        pass
    message.requeue()
    if pid := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
while (message := channel.basic_get("ends")) is None:
    pass
message.ack()
print(message.payload, flush=True)
if sys.argv[2] == "killed":
    os._exit(9)
if sys.argv[2] == "forked":
    connection.close()
    os._exit(0)
"""


def filled(connection: kombu.Connection, name: str, count: int) -> Queue:
    """Return a queue with so many messages."""
    queue = Queue(name)
    for number in range(count):
        publish(connection, number, routing_key=name, declare=[queue])
    return queue


def settled(connection: kombu.Connection) -> None:
    """Wait until the store has answered the acknowledgements of all channels."""
    end_s = time.monotonic() + LIMIT_S
    while any(channel.leases.unanswered for channel in connection.transport.channels):
        assert time.monotonic() < end_s, "acknowledgements are not answered"
        time.sleep(0.01)


@pytest.mark.parametrize("options", [{}, {"no_ack": True}])
def test_many_acknowledgements_share_a_call(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    """A program that acknowledges many messages causes few calls, with and without `no_ack`, and none comes again."""
    calls: list[int] = []
    real = Store.settle

    def counted(self: Store, verb: Verb, topic: str, *received: Received) -> None:
        calls.append(len(received))
        real(self, verb, topic, *received)

    monkeypatch.setattr(Store, "settle", counted)
    connection = connect(ack_delay_s=0.2)
    queue = filled(connection, "many", COUNT)
    found = consume(connection, queue, **options)
    take(connection, found, COUNT)
    if not options:
        for message in found:
            message.ack()
    connection.close()
    assert sum(calls) == COUNT
    assert len(calls) < COUNT / 5
    other = connect()
    consume(other, queue)
    nothing_comes(other)


def test_an_acknowledgement_frees_room_at_once(connect: Connect) -> None:
    """The prefetch counts messages without an acknowledgement, not acknowledgements on their way to the store."""
    connection = connect(ack_delay_s=1)
    found = consume(connection, filled(connection, "room", 20), prefetch=1)
    began_s = time.monotonic()
    for number in range(10):
        take(connection, found, number + 1)
        found[number].ack()
    assert [one.payload for one in found] == list(range(10))
    assert time.monotonic() - began_s < 9, "each acknowledgement was waited for"


@pytest.mark.parametrize(("end", "exit_code"), [("returns", 0), ("killed", 9), ("forked", 0)])
def test_the_end_of_a_program(connect: Connect, reput: MemoryReput, end: str, exit_code: int) -> None:
    """A program that ends without a close, and a fork, send their acknowledgements. A killed program does not."""
    connection = connect()
    queue = filled(connection, "ends", 1)
    url = f"reput:///{connection.transport.store.settings.prefix}"
    done = subprocess.run([sys.executable, "-c", PROGRAM, url, end], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (exit_code, "0\n"), done.stderr
    reput.advance(seconds=120)
    found = consume(connection, queue)
    if end == "killed":
        take(connection, found, 1)
        assert found[0].delivery_info["redelivered"]
    else:
        nothing_comes(connection)


def test_acknowledgements_outlast_an_outage(connect: Connect, reput: MemoryReput) -> None:
    """Acknowledgements during an outage are sent after it, and their messages do not come again."""
    connection = connect(timeout_s=0.5)
    queue = filled(connection, "away", 10)
    found = consume(connection, queue)
    take(connection, found, 10)
    reput.kill()
    for message in found:
        message.ack()
    time.sleep(1)  # a call fails meanwhile
    reput.start()
    settled(connection)
    reput.advance(seconds=120)
    nothing_comes(connection)
    assert connection.transport.store.size(topic_of(connection, "away")) == 0


def test_refused_acknowledgements_are_sent_again(connect: Connect, reput: MemoryReput) -> None:
    """Refused calls are repeated until they work."""
    connection = connect(timeout_s=0.2)
    found = consume(connection, filled(connection, "refused", 3))
    take(connection, found, 3)
    reput.fail_next("settle", "STORE_FULL", times=5)
    for message in found:
        message.ack()
    settled(connection)
    reput.advance(seconds=120)
    nothing_comes(connection)


def test_acknowledgements_are_bounded(connect: Connect, reput: MemoryReput, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound a program waits for the store, and gets an error of the connection after the time of a call."""
    monkeypatch.setattr(acks, "COUNT_MAX", 3)
    connection = connect(timeout_s=0.5)
    queue = filled(connection, "bound", 5)
    found = consume(connection, queue)
    take(connection, found, 5)
    reput.stop()
    for message in found[:3]:
        message.ack()
    with pytest.raises(connection.connection_errors, match="3 acknowledgements"):
        found[3].ack()
    reput.start()
    settled(connection)
    for message in found[3:]:
        message.ack()
    settled(connection)
    connection.close()
    other = connect()
    consume(other, queue)
    nothing_comes(other)


def test_without_a_delay_an_acknowledgement_is_in_the_log(connect: Connect, reput: MemoryReput) -> None:
    """With `ack_delay_s=0` a kill after `ack` delivers nothing again."""
    connection = connect(ack_delay_s=0)
    queue = filled(connection, "sure", 1)
    found = consume(connection, queue)
    take(connection, found, 1)
    found[0].ack()
    assert not connection.transport.channels[-1].leases.unanswered
    reput.advance(seconds=120)
    other = connect()
    consume(other, queue)
    nothing_comes(other)
