# SPDX-License-Identifier: Apache-2.0
"""The drills: harm, the alarm that it must cause, and the remedy of the runbook."""

import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from reput_client import NewMessage, SharePolicy, connect

from tests.alarms import site
from tests.alarms.site import Site
from tests.crash.fault.shim import compile_shim
from tests.support.certificates import self_signed

TOPIC, GROUP = "orders", "billing"
HOUR_NS = 3_600_000_000_000
FULL = 1 << 60
"""A reserve that no disk has: the log is as full as a disk that is filled."""

Harm = Callable[[Site], Callable[[], None]]
"""Does harm, and returns the remedy."""


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill on services that `opened` starts and stops."""

    name: str
    alarm: str
    opened: Callable[[Path], AbstractContextManager[Site]]
    harm: Harm
    allowed: frozenset[str] = frozenset()
    """Other alarms that the harm may cause, too."""


@contextmanager
def _stopping(made: Site) -> Iterator[Site]:
    try:
        yield made
    finally:
        made.stop()


def opened_store(folder: Path) -> AbstractContextManager[Site]:
    return _stopping(site.store(folder))


def _copies(folder: Path) -> AbstractContextManager[Site]:
    return _stopping(site.copies(folder))


def _elected(folder: Path) -> AbstractContextManager[Site]:
    return _stopping(site.elected(folder))


@contextmanager
def _with_certificate(folder: Path) -> Iterator[Site]:
    """Start a log whose certificate ends within two days."""
    files = self_signed(folder, "log")
    flags = ("--tls-certificate-file", str(files["log.pem"]), "--tls-key-file", str(files["log.key"]))
    with _stopping(site.log_alone(folder, *flags)) as made:
        yield made


@contextmanager
def _with_clock(folder: Path) -> Iterator[Site]:
    """Start a log whose clock the drill sets."""
    clock = folder / "clock"
    clock.write_bytes(bytes(8))
    environment = {"LD_PRELOAD": str(compile_shim(folder)), "REPUT_CLOCK": str(clock)}
    with _stopping(site.log_alone(folder, environment=environment)) as made:
        yield made


def _kill(label: str) -> Harm:
    def harm(made: Site) -> Callable[[], None]:
        service = made.services[label]
        service.end()
        return lambda: _ignore(service.start())

    return harm


def _freeze(*labels: str) -> Harm:
    def harm(made: Site) -> Callable[[], None]:
        frozen = [made.services[label] for label in labels]
        for service in frozen:
            service.freeze()

        def remedy() -> None:
            for service in frozen:
                service.thaw()

        return remedy

    return harm


def _lose_leader_and_coordinator(made: Site) -> Callable[[], None]:
    assert made.coordinator is not None
    made.coordinator.send(signal.SIGSTOP)
    thaw = _freeze("commitlog-a")(made)

    def remedy() -> None:
        assert made.coordinator is not None
        made.coordinator.send(signal.SIGCONT)
        thaw()

    return remedy


def _fill_disk(made: Site) -> Callable[[], None]:
    log = made.services["commitlog"]
    log.restart("--disk-reserve-bytes", str(FULL))
    return log.restart


def _block_key(made: Site) -> Callable[[], None]:
    """A member of an ordered group takes the first message of a key and keeps it."""
    log, index, delivery = (made.services[name].target for name in ("commitlog", "indexer", "delivery"))
    client = connect(commitlog=log, indexer=index, delivery=delivery)
    with client.producer() as producer:
        for number in range(3):
            producer.send_message(NewMessage(TOPIC, b"%d" % number, sharding_key="k"))
    client.share_groups.set(GROUP, SharePolicy(is_ordered=True))
    consumer = client.share_consumer(TOPIC, group=GROUP, invisible_s=600)
    held = consumer.receive(count=1, wait_s=30)
    assert not consumer.receive(count=10, wait_s=2)  # the others of the key wait for it

    def remedy() -> None:
        consumer.ack(*held)
        while found := consumer.receive(count=10, wait_s=5):
            consumer.ack(*found)
        consumer.close()
        client.close()

    return remedy


def _replace_certificate(made: Site) -> Callable[[], None]:
    """The certificate was short from the start. The remedy is a longer one."""
    folder = made.services["commitlog"].data_dir.parent
    return lambda: _ignore(self_signed(folder, "log", days=90))


def _step_clock(made: Site) -> Callable[[], None]:
    clock = made.services["commitlog"].data_dir.parent / "clock"
    with clock.open("r+b") as file:
        file.write(struct.pack("q", HOUR_NS))
    return lambda: None  # the alarm ends by itself after a quarter of an hour


def _ignore(_: object) -> None:
    """Drop a result."""


@contextmanager
def loaded(made: Site) -> Iterator[None]:
    """Send twenty messages a second to a topic, which a group consumes, within the block."""
    log, index, delivery = (made.services[name].target for name in ("commitlog", "indexer", "delivery"))
    client = connect(commitlog=log, indexer=index, delivery=delivery)
    is_over = threading.Event()

    def send() -> None:
        with client.producer() as producer:
            while not is_over.wait(1 / 20):
                producer.send(TOPIC, b"a message")

    with client.share_consumer(TOPIC, group=GROUP) as consumer:
        threads = [threading.Thread(target=send), threading.Thread(target=consumer.run, args=(_ignore,))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            consumer.close()
            for thread in threads:
                thread.join()
    client.close()


DRILLS = (
    Drill("the only CommitLog is killed", "ReputServiceAway", opened_store, _kill("commitlog")),
    Drill("the disk is full", "ReputAppendsRefused", opened_store, _fill_disk),
    Drill("the Indexer is frozen", "ReputServiceAway", opened_store, _freeze("indexer")),
    Drill("the Janitor is frozen", "ReputServiceAway", opened_store, _freeze("janitor")),
    Drill("a group is blocked", "ReputGroupStandsStill", opened_store, _block_key),
    Drill(
        "the leader is frozen, and no coordinator elects another",
        "ReputNoLeader",
        _copies,
        _freeze("commitlog-a"),
        frozenset({"ReputFewerInSync", "ReputInstanceAway"}),
    ),
    Drill(
        "the leader is frozen, and another log is elected",
        "ReputInstanceAway",
        _elected,
        _freeze("commitlog-a"),
        frozenset({"ReputFewerInSync"}),
    ),
    Drill(
        "the leader and the coordinator are frozen, so no log is elected",
        "ReputNoLeader",
        _elected,
        _lose_leader_and_coordinator,
        frozenset({"ReputFewerInSync", "ReputInstanceAway", "ReputNotEnoughReplicas", "ReputCoordinatorAway"}),
    ),
    Drill(
        "a certificate ends within two days",
        "ReputCertificateEndsSoon",
        _with_certificate,
        _replace_certificate,
        frozenset({"ReputCertificateEnds"}),
    ),
    Drill(
        "a clock is set ahead by an hour",
        "ReputClockStepped",
        _with_clock,
        _step_clock,
        frozenset({"ReputLogAheadOfClock", "ReputJanitorStale"}),
    ),
)
