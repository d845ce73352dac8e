# SPDX-License-Identifier: Apache-2.0
"""The services of a drill as processes on fixed ports, with their metrics."""

import os
import signal
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from libs.shards import shards_file
from libs.shards.shards_file import Shard
from tests.support.etcd_server import EtcdServer
from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

SMALL_SEGMENTS = ("--segment-size-bytes", str(64 << 20))
"""Logs of drills at the same time do not fill the disk."""


class Watched(FixedService):
    """A service with a metrics port. `environment` is added to its variables."""

    def __init__(self, name: str, data_dir: Path, *flags: str, environment: Mapping[str, str] | None = None) -> None:
        metrics_port = free_port()
        self.metrics_target = f"127.0.0.1:{metrics_port}"
        self.wrapper = ("env", *(f"{key}={value}" for key, value in (environment or {}).items()))
        self._is_awaited = True
        segments = SMALL_SEGMENTS if name == "commitlog" else ()
        super().__init__(name, data_dir, "--metrics-port", str(metrics_port), *segments, *flags)

    def _wait_serving(self) -> None:
        """Wait until /healthz says SERVING, which needs no certificate."""
        if not self._is_awaited:
            return
        assert self._child is not None
        end_s = time.monotonic() + LIMIT_S
        while not _is_healthy(f"http://{self.metrics_target}/healthz"):
            assert self._child.poll() is None, f"the {self.name} ended: {self._last_line()}"
            assert time.monotonic() < end_s, f"the {self.name} does not serve"
            time.sleep(0.1)

    def _last_line(self) -> str:
        lines = Path(f"{self.data_dir}.{self.name}.log").read_text().splitlines()
        return lines[-1] if lines else ""

    def stop(self) -> None:
        """Stop it in order, also if it is frozen."""
        if self._child is not None and self._child.poll() is None:
            self.thaw()
        super().stop()

    def end(self) -> None:
        """Kill it without an orderly end."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop its processor time."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, *flags: str) -> None:
        """End it in order, and start it with other flags behind its own."""
        self.stop()
        self._start_with(flags)

    def restart_unready(self, *flags: str) -> None:
        """Kill it, and start it with flags that keep it from serving."""
        self.end()
        self._is_awaited = False
        self._start_with(flags)
        self._is_awaited = True

    def _start_with(self, flags: Sequence[str]) -> None:
        kept, self._flags = self._flags, (*self._flags, *flags)
        self.start()
        self._flags = kept


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S):
            return True
    except OSError:
        return False


class Site:
    """The services of a drill by name. A name is also the job of its targets, without the part behind a dash."""

    def __init__(self) -> None:
        self.services: dict[str, Watched] = {}
        self.loads = ExitStack()
        """Clients of a drill. They end before the services."""
        self.coordinator: EtcdServer | None = None

    def add(self, label: str, service: Watched) -> Watched:
        """Start a service."""
        self.services[label] = service
        service.start()
        return service

    @property
    def targets(self) -> Mapping[str, Sequence[str]]:
        """The metrics targets by job."""
        found: dict[str, list[str]] = {}
        for label, service in self.services.items():
            found.setdefault(label.partition("-")[0], []).append(service.metrics_target)
        return found

    def stop(self) -> None:
        """Stop all services, the last one first."""
        self.loads.close()
        for service in reversed(self.services.values()):
            service.stop()
        if self.coordinator is not None:
            self.coordinator.kill()

    def restart_coordinator(self) -> None:
        """Kill etcd, and start it on its data."""
        assert self.coordinator is not None
        self.coordinator.kill()
        self.coordinator.start()


@contextmanager
def stopping(made: Site) -> Iterator[Site]:
    """Stop all services of a site at the end of the block."""
    try:
        yield made
    finally:
        made.stop()


def store(
    folder: Path,
    *,
    log_flags: Sequence[str] = (),
    log_environment: Mapping[str, str] | None = None,
    janitor_flags: Sequence[str] = (),
) -> Site:
    """Start a store of four services."""
    folder.mkdir(exist_ok=True)
    site = Site()
    log = site.add("commitlog", Watched("commitlog", folder / "log", *log_flags, environment=log_environment))
    index = site.add("indexer", Watched("indexer", folder / "index", "--commitlog-target", log.target))
    owners = ("--commitlog-target", log.target, "--indexer-target", index.target)
    site.add("janitor", Watched("janitor", folder / "janitor", *owners, *janitor_flags))
    site.add("delivery", Watched("delivery", folder / "delivery", *owners))
    return site


def store_with_door(folder: Path, *door_flags: str) -> Site:
    """Start a store of four services, and a gateway before them."""
    site = store(folder)
    words = [word for name, one in site.services.items() for word in (f"--{name}-target", one.target)]
    site.add("gateway", Watched("gateway", folder / "gateway", *words, *door_flags))
    return site


def shards(folder: Path) -> Site:
    """Start two shards of three services, and a gateway before them."""
    folder.mkdir(exist_ok=True)
    site, entries, file = Site(), dict[str, Shard](), folder / "shards.toml"
    for name in "ab":
        log = site.add(f"commitlog-{name}", Watched("commitlog", folder / f"log-{name}"))
        index = site.add(
            f"indexer-{name}", Watched("indexer", folder / f"index-{name}", "--commitlog-target", log.target)
        )
        targets = ("--commitlog-target", log.target, "--indexer-target", index.target)
        delivery = site.add(f"delivery-{name}", Watched("delivery", folder / f"delivery-{name}", *targets))
        entries[name] = Shard(commitlog=log.target, indexer=index.target, delivery=delivery.target)
    file.write_text(shards_file.dumps(entries), encoding="utf-8")
    flags = ("--shards-file", str(file), "--auto-create-topics", "true")
    site.add("gateway", Watched("gateway", folder / "gateway", *flags))
    return site


def copies(folder: Path) -> Site:
    """Start a log that leads, and two that follow it."""
    site = Site()
    leader = site.add("commitlog-a", Watched("commitlog", folder / "a", "--role", "sync_leader", "--replica-id", "a"))
    for name in "bc":
        flags = ("--role", "follower", "--replica-id", name, "--leader-target", leader.target)
        site.add(f"commitlog-{name}", Watched("commitlog", folder / name, *flags))
    return site


def elected(folder: Path) -> Site:
    """Start etcd, and three logs that elect a leader by it."""
    folder.mkdir(exist_ok=True)
    site = Site()
    site.coordinator = EtcdServer(folder / "etcd")
    site.coordinator.start()
    for name in "abc":
        flags = ("--role", "sync_leader", "--replica-id", name, "--bootstrap-replica-id", "a")
        found = ("--coordinator", "etcd", "--etcd-targets", site.coordinator.target)
        site.add(f"commitlog-{name}", Watched("commitlog", folder / name, *flags, *found))
    return site


def log_alone(folder: Path, *flags: str, environment: Mapping[str, str] | None = None) -> Site:
    """Start a log alone."""
    site = Site()
    site.add("commitlog", Watched("commitlog", folder / "log", *flags, environment=environment))
    return site
