# SPDX-License-Identifier: Apache-2.0
"""Copies: the stores that `reput up` runs on this machine, their directories, ports and flags."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from msgspec import Struct, field
from msgspec.structs import replace

from cli.free_ports import HOST, NoFreePort, hold
from cli.supervisor import Child
from libs.formats.errors import BadField
from libs.shards import shards_file
from libs.shards.shards_file import Shard

LOOPBACK_OF = {"0.0.0.0": HOST, "::": "::1"}  # noqa: S104 - known, not listened on
"""Loopback address at which a program on this machine reaches a service that listens on all addresses."""
SHARDS_FILE = "shards.toml"
METRICS_PORTS = {"commitlog": 7201, "indexer": 7202, "janitor": 7203, "delivery": 7204}
REPLICA_IDS = "abcdefg"
SHARD_NAMES = "abcdefgh"
COPY_PORTS = 10
"""Distance between the ports of two copies."""
COPY_COUNT_MAX = 10
"""Copies of all shards together: the ports of further copies would be those of metrics."""


class Copy(Struct, frozen=True):
    """A copy of a store: its directory, ports and flags of its services. A single copy has no id."""

    data_dir: Path
    ports: Mapping[str, int]
    hosts: Mapping[str, str]
    """The host on which each service listens."""
    replica_id: str = ""
    shard: str = ""
    """The shard that it is a copy of."""
    at: int = 0
    """Its number among the copies of all shards."""
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_insecure: bool = False
    """Whether the services may listen beyond loopback without TLS. Without it their settings decide."""

    @property
    def label(self) -> str:
        """Its name in the log: the shard, the id of the copy, or both."""
        return "-".join(filter(None, (self.shard, self.replica_id)))

    def target(self, name: str) -> str:
        """Return the address at which a program on this machine reaches a service."""
        host = LOOPBACK_OF.get(self.hosts[name], self.hosts[name])
        return f"[{host}]:{self.ports[name]}" if ":" in host else f"{host}:{self.ports[name]}"

    def children(self, config: Path | None, *, metrics: bool) -> list[Child]:
        """Return the services to run."""
        shared = ["--config", str(config)] if config is not None else []
        shared += ["--allow-insecure", "true"] if self.is_insecure else []
        files = ["--data-dir", str(self.data_dir)]
        log = ["--commitlog-target", self.target("commitlog")]
        flags = {
            "commitlog": files,
            "indexer": [*files, *log, "--commitlog-data-dir", str(self.data_dir)],
            "janitor": [*files, *log, "--indexer-target", self.target("indexer")],
            "delivery": [*log, "--indexer-target", self.target("indexer")],
        }
        found = []
        for name, port in self.ports.items():
            listen = ["--listen-host", self.hosts[name], "--port", str(port)]
            own = [*shared, *listen, *flags[name], *self.flags.get(name, ())]
            if not metrics or self.at:
                own += ["--metrics-port", str(METRICS_PORTS[name] + self.at * COPY_PORTS if metrics else 0)]
            found.append(Child(name, own, self.target(name), self.label))
        return found


def targets_of(copies: Sequence[Copy], service: str) -> str:
    """Return the addresses of a service of all copies, of which the leader's is used, with commas between."""
    return ",".join(copy.target(service) for copy in copies)


def copies_of(
    data_dir: Path,
    ports: Mapping[str, int],
    etcd: str | None,
    count: int,
    hosts: Mapping[str, str],
    *,
    shard: str = "",
    first_at: int = 0,
) -> list[Copy]:
    """Return several copies. The first leads, or with etcd the copy that they elect."""
    elected = ["--coordinator", "etcd", "--etcd-targets", etcd or "", "--bootstrap-replica-id", REPLICA_IDS[0]]
    elected += ["--etcd-prefix", f"/reput/up{data_dir.resolve()}"]
    copies: list[Copy] = []
    for at, name in enumerate(REPLICA_IDS[:count], first_at):
        follows = ["--role", "follower", "--leader-target", copies[0].target("commitlog")] if copies else []
        flags = {"commitlog": ["--replica-id", name, *(elected if etcd else follows)]}
        copies.append(Copy(data_dir / name, _ports_at(ports, at), hosts, name, shard, at, flags))
    return copies


def shards_of(
    data_dir: Path, ports: Mapping[str, int], count: int, hosts: Mapping[str, str], *, replicas: int, etcd: str | None
) -> list[Copy]:
    """Return several stores, each with a directory and ports of its own, and each with so many copies."""
    found: list[Copy] = []
    for name in SHARD_NAMES[:count]:
        place, at = data_dir / name, len(found)
        if replicas > 1:
            found += copies_of(place, ports, etcd, replicas, hosts, shard=name, first_at=at)
        else:
            found.append(Copy(place, _ports_at(ports, at), hosts, "", name, at))
    knows_peers = ["--shards-file", str(data_dir / SHARDS_FILE)]
    return [replace(copy, flags={**copy.flags, "delivery": knows_peers}) for copy in found]


def write_shards(copies: Sequence[Copy], data_dir: Path) -> Path:
    """Write the file that names the shards, and return its path. A file that is there keeps its `takes_topics`."""
    path = data_dir / SHARDS_FILE
    try:
        before = shards_file.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (BadField, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--shards") from error
    shards = {}
    for name, group in groupby(copies, lambda copy: copy.shard):
        own = list(group)
        targets: dict[str, Any] = {service: targets_of(own, service) for service in own[0].ports}
        shards[name] = Shard(**targets, takes_topics=name not in before or before[name].takes_topics)
    data_dir.mkdir(parents=True, exist_ok=True)
    path.write_text(shards_file.dumps(shards), encoding="utf-8")
    return path


def chosen_ports(ports: Mapping[str, int]) -> dict[str, int]:
    """Replace 0 by free ports, which are held until their services start. No two are equal, of all calls."""
    try:
        return {name: port or hold() for name, port in ports.items()}
    except NoFreePort as error:
        raise typer.BadParameter(str(error), param_hint="--port") from error


def _ports_at(ports: Mapping[str, int], at: int) -> dict[str, int]:
    """Return the ports of the copy with this number."""
    return chosen_ports({name: port and port + at * COPY_PORTS for name, port in ports.items()})
