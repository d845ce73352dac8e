# SPDX-License-Identifier: Apache-2.0
"""Shards as processes of this machine: a store behind a gateway, and the second store that joins it.

Invariant: after `Shards` was left in any way, none of its processes runs any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.cluster import Cluster, free_ports, reput
from demo.members import SIZES
from libs.shards import shards_file
from libs.shards.shards_file import Shard

NAMES = ("a", "b")
SERVICES = ("commitlog", "indexer", "delivery")


@dataclass(slots=True)
class Shards:
    """A gateway, the store `a` behind it, and the store `b`, which joins. `on_command` gets each command."""

    directory: Path
    on_command: Callable[[str], None]
    file: Path = field(init=False)
    gateway: Cluster = field(init=False)
    stores: dict[str, Cluster] = field(init=False)

    def __post_init__(self) -> None:
        self.file, logs = self.directory / "shards.toml", self.directory / "logs"
        ports = free_ports(["gateway", *(f"{service} {name}" for name in NAMES for service in SERVICES)])
        self.stores = {
            name: Cluster(self.directory / name, logs / name, {one: ports[f"{one} {name}"] for one in SERVICES})
            for name in NAMES
        }
        for store in self.stores.values():
            store.settings = {**SIZES, "delivery": {"shards-file": str(self.file)}}
        self.gateway = Cluster(self.directory / "gateway", logs, {"gateway": ports["gateway"]})
        self.gateway.settings = {"gateway": {"shards-file": str(self.file)}}

    def __enter__(self) -> Self:
        try:
            self._write(["a"])
            self._start("a")
            self.gateway.start_all()
            self.gateway.wait_all_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def join(self) -> None:
        """Starts the second store, and then the Delivery of the first and the gateway with a file of both."""
        self._write(NAMES)
        self._start("b")
        for cluster, service in ((self.stores["a"], "delivery"), (self.gateway, "gateway")):
            cluster.stop_service(service)
            cluster.restart(service)

    def reput(self, *arguments: str) -> str:
        """Runs a command of `reput` in the directory of the stores. Returns its output. Raises ServiceFailed."""
        self.on_command(f"$ reput {' '.join(arguments)}")
        return reput(self.directory, arguments, REPUT_CLIENT_SHARDS_FILE=str(self.file))

    def stop(self) -> None:
        """Stops all processes in order."""
        self.gateway.stop()
        for store in self.stores.values():
            store.stop()

    def _start(self, name: str) -> None:
        self.stores[name].start_all()
        self.stores[name].wait_all_serving()

    def _write(self, names: Sequence[str]) -> None:
        entries = {}
        for name in names:
            targets: dict[str, Any] = {service: self.stores[name].target(service) for service in SERVICES}
            entries[name] = Shard(**targets)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.file.write_text(shards_file.dumps(entries), encoding="utf-8")
