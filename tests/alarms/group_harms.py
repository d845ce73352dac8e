# SPDX-License-Identifier: Apache-2.0
"""Harm to groups, settings and audit files, with the cures of the runbook."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reput_client import Client, NewMessage, ReputError, SharePolicy, connect

from tests.alarms import site
from tests.alarms.drill import Cure, reput
from tests.alarms.load import GROUP, KEEPING_GROUP, TOPIC, read, repeated
from tests.alarms.site import Site

RIGHTS = """
[[subjects]]
name = "shop"
token_sha256 = ["{digest}"]

[[rules]]
subjects = ["*"]
allow = ["produce"]
topics = ["*"]
"""


def _client(made: Site) -> Client:
    """Return a client of a store. It ends with the drill."""
    log, index, delivery = (made.services[name].target for name in ("commitlog", "indexer", "delivery"))
    return made.loads.enter_context(connect(commitlog=log, indexer=index, delivery=delivery))


def _send(client: Client, count: int, *, key: str = "") -> None:
    with client.producer() as producer:
        for number in range(count):
            message = NewMessage(TOPIC, b"%d" % number, sharding_key=key or None)
            client.query.wait_indexed(producer.send_message(message).result(30))


def block_key(made: Site) -> Cure:
    """Receive the first message of an ordering key, and keep it. The cure settles it."""
    client = _client(made)
    _send(client, 3, key="k")
    client.share_groups.set(GROUP, SharePolicy(is_ordered=True))
    consumer = made.loads.enter_context(client.share_consumer(TOPIC, group=GROUP, invisible_s=600))
    held = consumer.receive(count=1, wait_s=30)
    assert not consumer.receive(count=10, wait_s=2)  # the others of the key wait for it

    def cure() -> None:
        consumer.ack(*held)
        while found := consumer.receive(count=10, wait_s=5):
            consumer.ack(*found)

    return cure


def bury(made: Site) -> Cure:
    """Give messages up. The cure sends them again to their topic."""
    client = _client(made)
    _send(client, 3)
    with client.share_consumer(TOPIC, group=GROUP) as consumer:
        buried = 0
        while buried < 3:
            found = consumer.receive(count=3, wait_s=30)
            consumer.bury(*found)
            buried += len(found)
    log, delivery = (made.services[name].target for name in ("commitlog", "delivery"))
    return lambda: reput("--commitlog", log, "--delivery", delivery, "dlq", "replay", GROUP)


def fail_always(made: Site) -> Cure:
    """Give each message back. The cure is a receiver that acknowledges."""
    client = _client(made)
    _send(client, 20)
    client.share_groups.set(GROUP, SharePolicy(attempts_max=1_000))
    consumer = made.loads.enter_context(client.share_consumer(TOPIC, group=GROUP))
    is_fixed = threading.Event()

    def receive() -> None:
        found = consumer.receive(count=20, wait_s=1)
        if is_fixed.is_set():
            consumer.ack(*found)
        else:
            consumer.nack(*found, delay_s=1)

    made.loads.enter_context(repeated(receive, 0.1))
    return is_fixed.set


def read_no_more(made: Site) -> Cure:
    """Stop the programs of a group that keeps offsets, while messages come. The cure starts them."""
    client = _client(made)
    _send(client, 3)
    with client.consumer(TOPIC, group=KEEPING_GROUP) as consumer:
        assert consumer.poll_many(1, 30)
        consumer.commit()
    _send(client, 3)

    def cure() -> None:
        again = made.loads.enter_context(client.consumer(TOPIC, group=KEEPING_GROUP))
        made.loads.enter_context(repeated(lambda: read(again), 0.1))

    return cure


# Settings and audit files.


@contextmanager
def with_audit_file(folder: Path) -> Iterator[Site]:
    """Start a log with an audit file."""
    with site.stopping(site.log_alone(folder, "--audit-file", str(folder / "audit"))) as made:
        yield made


def fill_audit_file(made: Site) -> Cure:
    """Make each write to the audit file fail as on a full disk. The cure gives it room."""
    file = made.services["commitlog"].data_dir.parent / "audit"
    file.rename(file.with_name("audit.kept"))
    file.symlink_to("/dev/full")
    topics = made.loads.enter_context(connect(commitlog=made.services["commitlog"].target)).topics
    for number in range(3):
        topics.create(f"topic-{number}")

    def cure() -> None:
        file.unlink()
        file.with_name("audit.kept").rename(file)

    return cure


@contextmanager
def with_rights(folder: Path) -> Iterator[Site]:
    """Start a log with a rights file."""
    (folder / "rights.toml").write_text(RIGHTS.format(digest="0" * 64))
    with site.stopping(site.log_alone(folder, "--rights-file", str(folder / "rights.toml"))) as made:
        yield made


def spoil_rights(made: Site) -> Cure:
    """Write a wrong rights file. The cure is a right one, which is checked."""
    log = made.services["commitlog"]
    file = log.data_dir.parent / "rights.toml"
    right = file.read_text()
    client = made.loads.enter_context(connect(commitlog=log.target))

    def call() -> None:
        with contextlib.suppress(ReputError):
            client.topics.get(TOPIC)

    made.loads.enter_context(repeated(call, 1))  # the file is read again when a call comes
    file.write_text(right.replace("produce", "do everything"))

    def cure() -> None:
        file.write_text(right)
        reput("access", "check", str(file))

    return cure


@contextmanager
def with_settings(folder: Path) -> Iterator[Site]:
    """Start a log with a file of settings."""
    (folder / "reput.toml").write_text('[commitlog]\nlog_level = "info"\n')
    with site.stopping(site.log_alone(folder, "--config", str(folder / "reput.toml"))) as made:
        yield made


def spoil_settings(made: Site) -> Cure:
    """Reload a wrong setting. The cure is a right file, which is checked and reloaded."""
    log = made.services["commitlog"]
    file = log.data_dir.parent / "reput.toml"
    right = file.read_text()
    file.write_text(right.replace('"info"', '"loud"'))
    os.kill(log.pid, signal.SIGHUP)

    def cure() -> None:
        file.write_text(right)
        reput("config", "validate", str(file))
        os.kill(log.pid, signal.SIGHUP)

    return cure
