# SPDX-License-Identifier: Apache-2.0
"""Harm to processes, disks, clocks and certificates, with the cures of the runbook."""

import shutil
import signal
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from reput_client import Durability, ProducerOptions, connect

from tests.alarms import site
from tests.alarms.drill import Cure, Harm, Opened, reput
from tests.alarms.load import TOPIC, repeated
from tests.alarms.site import Site
from tests.crash.fault.shim import compile_shim
from tests.support.certificates import self_signed

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
SLOW_SYNC_NS = 2 * SECOND_NS
AHEAD_S = 20


# The services of a drill.


@contextmanager
def opened_store(folder: Path) -> Iterator[Site]:
    """Start a store of four services."""
    with site.stopping(site.store(folder)) as made:
        yield made


@contextmanager
def log_alone(folder: Path) -> Iterator[Site]:
    """Start a log alone."""
    with site.stopping(site.log_alone(folder)) as made:
        yield made


@contextmanager
def copies(folder: Path) -> Iterator[Site]:
    """Start a log that leads, and two that follow it."""
    with site.stopping(site.copies(folder)) as made:
        yield made


@contextmanager
def elected(folder: Path) -> Iterator[Site]:
    """Start etcd, and three logs that elect a leader."""
    with site.stopping(site.elected(folder)) as made:
        yield made


def with_certificate(days: int) -> Opened:
    """Return how a log with a certificate for so many days is started."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Site]:
        files = self_signed(folder, "log", days=days)
        flags = ("--tls-certificate-file", str(files["log.pem"]), "--tls-key-file", str(files["log.key"]))
        with site.stopping(site.log_alone(folder, *flags)) as made:
            yield made

    return opened


def with_clock(offset_ns: int = 0) -> Opened:
    """Return how a log is started whose clock differs from the machine's, and can be set."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Site]:
        with site.stopping(site.log_alone(folder, environment=_shimmed(folder, "REPUT_CLOCK", offset_ns))) as made:
            yield made

    return opened


@contextmanager
def with_past_clock(folder: Path) -> Iterator[Site]:
    """Start a store whose log stamps messages with a time of an hour ago."""
    with site.stopping(site.store(folder, log_environment=_shimmed(folder, "REPUT_CLOCK", -HOUR_NS))) as made:
        yield made


@contextmanager
def with_slow_disk(folder: Path) -> Iterator[Site]:
    """Start a log whose syncs can be slowed down."""
    with site.stopping(site.log_alone(folder, environment=_shimmed(folder, "REPUT_SYNC_DELAY", 0))) as made:
        yield made


def _shimmed(folder: Path, variable: str, number: int) -> Mapping[str, str]:
    file = folder / variable
    file.write_bytes(struct.pack("q", number))
    return {"LD_PRELOAD": str(compile_shim(folder)), variable: str(file)}


def _set(made: Site, variable: str, number: int) -> None:
    with (made.services["commitlog"].data_dir.parent / variable).open("r+b") as file:
        file.write(struct.pack("q", number))


# Processes.


def kill(label: str) -> Harm:
    """Kill a service. The cure starts it."""

    def harm(made: Site) -> Cure:
        made.services[label].end()
        return made.services[label].start

    return harm


def stop(label: str) -> Harm:
    """Stop a service in order. The cure starts it."""

    def harm(made: Site) -> Cure:
        made.services[label].stop()
        return made.services[label].start

    return harm


def freeze(*labels: str) -> Harm:
    """Freeze services. The cure kills and starts the first."""

    def harm(made: Site) -> Cure:
        for label in labels:
            made.services[label].freeze()
        return made.services[labels[0]].kill

    return harm


def restart_often(made: Site) -> Cure:
    """Kill a service three times."""
    for _ in range(3):
        made.services["commitlog"].kill()
        time.sleep(2)
    return lambda: None


def halt_often(made: Site) -> Cure:
    """Give a log no processor time for two seconds, at once and each half minute. The cure is a machine with time.

    A scrape during the two seconds fails, and the alarm begins anew, so there is time for it in between.
    """
    log = made.services["commitlog"]
    is_over = threading.Event()

    def halt() -> None:
        if not is_over.is_set():
            log.freeze()
            time.sleep(2)
            log.thaw()

    halt()
    made.loads.enter_context(repeated(halt, 30))
    return is_over.set


# Copies.


def lose_leader(made: Site) -> Cure:
    """Freeze the leader of copies. The cure makes sure that it stays stopped, and promotes a follower."""
    leader, next_one, other = (made.services[f"commitlog-{name}"] for name in "abc")
    leader.freeze()

    def cure() -> None:
        leader.end()
        reput("--commitlog", next_one.target, "promote", "--accept-data-loss")
        other.restart("--leader-target", next_one.target)

    return cure


def lose_leader_and_coordinator(made: Site) -> Cure:
    """Freeze the leader and etcd. The cure starts etcd again, and another log is elected."""
    assert made.coordinator is not None
    made.coordinator.send(signal.SIGSTOP)
    made.services["commitlog-a"].freeze()
    return made.restart_coordinator


def lose_coordinator(made: Site) -> Cure:
    """Freeze etcd. The cure starts it again."""
    assert made.coordinator is not None
    made.coordinator.send(signal.SIGSTOP)
    return made.restart_coordinator


# Disks, clocks, certificates.


def slow_disk(made: Site) -> Cure:
    """Make each sync take seconds, under load. The cure is a fast disk."""
    client = made.loads.enter_context(connect(commitlog=made.services["commitlog"].target))
    producer = made.loads.enter_context(client.producer(ProducerOptions(durability=Durability.LOCAL_DISK)))
    made.loads.enter_context(repeated(lambda: producer.send(TOPIC, b"a message"), 0.1))
    _set(made, "REPUT_SYNC_DELAY", SLOW_SYNC_NS)
    return lambda: _set(made, "REPUT_SYNC_DELAY", 0)


def unmount(made: Site) -> Cure:
    """Start the log in an empty directory. The cure mounts its disk again."""
    log = made.services["commitlog"]
    with (
        connect(commitlog=log.target, indexer=made.services["indexer"].target) as client,
        client.producer() as producer,
    ):
        client.query.wait_indexed(producer.send(TOPIC, b"a message").result(30))
    away = log.data_dir.with_name("unmounted")
    log.stop()
    log.data_dir.rename(away)
    log.start()

    def cure() -> None:
        log.stop()
        shutil.rmtree(log.data_dir)
        away.rename(log.data_dir)
        log.start()

    return cure


def step_clock(made: Site) -> Cure:
    """Set a clock ahead by an hour. The cure sets it right."""
    _set(made, "REPUT_CLOCK", HOUR_NS)
    return lambda: _set(made, "REPUT_CLOCK", 0)


def append_in_future(made: Site) -> Cure:
    """Append with a clock that is ahead, and set it right. The cure stops the log for as long."""
    log = made.services["commitlog"]
    with connect(commitlog=log.target) as client, client.producer() as producer:
        producer.send(TOPIC, b"a message").result(30)
    _set(made, "REPUT_CLOCK", 0)

    def cure() -> None:
        log.stop()
        time.sleep(AHEAD_S)
        log.start()

    return cure


def replace_certificate(made: Site) -> Cure:
    """Leave the certificate as it is. The cure replaces the file."""
    folder = made.services["commitlog"].data_dir.parent
    return lambda: self_signed(folder, "log", days=90)
