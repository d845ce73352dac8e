# SPDX-License-Identifier: Apache-2.0
"""Three copies of a store as processes of this machine, and the choice of their leader.

If the machine has etcd, the logs elect their leader with it. Otherwise a leads until it dies. Then an operator finds
the log with the most data, promotes it, and makes the others follow it: the demo is the operator, with `reput promote`.
Invariant: after `Members` was left in any way, none of its processes runs any more.
"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from reput.commitlog.v1.log_service_pb2 import LOG_STATE_SERVING, GetStatusResponse
from reput_client import Client, ReputError, RetryPolicy, connect

from demo.cluster import (
    POLL_INTERVAL_S,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Cluster,
    ServiceFailed,
    free_ports,
    reput,
)
from libs.runtime.trust.tokens import find_local_token

NAMES = ("a", "b", "c")
SERVICES = ("commitlog", "indexer")
SIZES = {
    "commitlog": {"segment-size-bytes": str(16 << 20)},
    "indexer": {"index-slot-count": "250000", "index-entry-capacity": "1000000"},
}
"""Smaller files than by default, so that three copies need little disk space, and logs have several segments."""

PATIENCE = RetryPolicy(retries=1000, delay_max_s=0.5)
"""It retries for longer than a failover on a busy machine."""


class Succession(Protocol):
    """The way in which a new leader is chosen."""

    words: str
    """The sentence about it in the report."""

    def settings(self, name: str, /) -> dict[str, str]:
        """Returns the settings of a log at its start."""
        ...

    def succeed(self, members: "Members", left: Iterable[str]) -> str:
        """Makes a remaining log the leader. Returns its name."""
        ...


@dataclass(slots=True)
class ByElection:
    """The logs elect their leader with etcd."""

    etcd: str
    """host:port"""
    words: str = "this machine has etcd, so they elect the next one by it"

    def settings(self, _name: str, /) -> dict[str, str]:
        """Returns the same settings for all logs. The first log creates the record."""
        return {
            "role": "sync_master",
            "coordinator": "etcd",
            "etcd-targets": self.etcd,
            "etcd-prefix": "/reput/demo",
            "bootstrap-replica-id": NAMES[0],
        }

    def succeed(self, members: "Members", left: Iterable[str]) -> str:
        """Waits until the logs have elected a leader."""
        return members.wait_leader(left)


@dataclass(slots=True)
class ByOperator:
    """An operator decides. Here the demo is the operator."""

    targets: dict[str, str]
    leader: str = NAMES[0]
    words: str = "this machine has no etcd to elect by, so the demo promotes the next one, as an operator does"

    def settings(self, name: str, /) -> dict[str, str]:
        """Returns the role of a log, and the leader that it follows."""
        if name == self.leader:
            return {"role": "sync_master"}
        return {"role": "follower", "leader-target": self.targets[self.leader]}

    def succeed(self, members: "Members", left: Iterable[str]) -> str:
        """Promotes the log with the most data, and makes the others follow it."""
        states = {name: members.client(name).admin.commitlog_status() for name in left}
        chosen = max(states, key=lambda name: (states[name].epoch, states[name].flushed_physical_offset))
        arguments = ["promote", "--role", "sync-master", "--accept-data-loss"]
        members.reput("--commitlog", members.targets["commitlog"][chosen], *arguments)
        self.leader = chosen
        for name in set(left) - {chosen}:
            members.restart_log(name)
        return chosen


@dataclass(slots=True)
class Members:
    """The three copies, each with a CommitLog and an Indexer. `on_command` is called with each command."""

    directory: Path
    on_command: Callable[[str], None]
    succession: Succession = field(init=False)
    targets: dict[str, dict[str, str]] = field(init=False)
    """Addresses by service and name."""
    _clusters: dict[str, Cluster] = field(init=False)
    _clients: dict[str, Client] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        ports = free_ports(["etcd", "peers", *(f"{service} {name}" for service in SERVICES for name in NAMES)])
        self.targets = {s: {name: f"127.0.0.1:{ports[f'{s} {name}']}" for name in NAMES} for s in SERVICES}
        self._clusters = {name: self._cluster(name, {s: ports[f"{s} {name}"] for s in SERVICES}) for name in NAMES}
        with contextlib.ExitStack() as stack:
            self.succession = ByOperator(self.targets["commitlog"])
            if program := shutil.which("etcd"):
                stack.enter_context(running_etcd(program, self.directory / "etcd", ports["etcd"], ports["peers"]))
                self.succession = ByElection(f"127.0.0.1:{ports['etcd']}")
            stack.callback(self.stop)
            for name in NAMES:
                self._start(name)
            for name in NAMES:
                self._clusters[name].wait_all_serving()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def client(self, *names: str) -> Client:
        """Returns a client of some copies. `stop` closes it."""
        key = ",".join(names)
        if key not in self._clients:
            commitlog, indexer = (",".join(self.targets[s][name] for name in names) for s in SERVICES)
            token = find_local_token([*commitlog.split(","), *indexer.split(",")])
            self._clients[key] = connect(commitlog=commitlog, indexer=indexer, token=token, retry=PATIENCE)
        return self._clients[key]

    def kill(self, name: str) -> None:
        """Kills both services of a copy, as if its machine had failed."""
        for service in SERVICES:
            self._clusters[name].kill(service)

    def start_again(self, name: str) -> None:
        """Starts a killed copy."""
        self._start(name)
        self._clusters[name].wait_all_serving()

    def restart_log(self, name: str) -> None:
        """Stops a log in order and starts it with its current settings."""
        cluster = self._clusters[name]
        cluster.stop_service("commitlog")
        self._set(name)
        cluster.restart("commitlog")

    def wait_leader(self, names: Iterable[str], *, in_sync_count: int = 1) -> str:
        """Waits until a copy leads with `in_sync_count` logs in sync. Returns its name. Raises ServiceFailed."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for name in names:
                if leads(self.client(name), in_sync_count):
                    return name
            time.sleep(POLL_INTERVAL_S)
        raise ServiceFailed(f"none of {', '.join(names)} leads with {in_sync_count} in sync; {self.directory}/logs")

    def reput(self, *arguments: str) -> str:
        """Runs a command of `reput` in the directory of the copies. Returns its output. Raises ServiceFailed."""
        self.on_command(f"$ reput {' '.join(arguments)}")
        return reput(self.directory, arguments)

    def stop(self) -> None:
        """Stops all copies in order."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        for cluster in self._clusters.values():
            cluster.stop()

    def _cluster(self, name: str, ports: dict[str, int]) -> Cluster:
        return Cluster(self.directory / name, self.directory / "logs" / name, ports)

    def _start(self, name: str) -> None:
        self._set(name)
        self._clusters[name].start_all()

    def _set(self, name: str) -> None:
        """Sets the settings for the next start of a copy."""
        own = {"replica-id": name, **self.succession.settings(name)}
        self._clusters[name].settings = SIZES | {"commitlog": SIZES["commitlog"] | own}


def leads(client: Client, in_sync_count: int) -> bool:
    """Returns whether a log accepts appends, with `in_sync_count` logs in sync, itself included."""
    try:
        state: GetStatusResponse = client.admin.commitlog_status()
    except ReputError:
        return False
    is_open = state.state == LOG_STATE_SERVING and state.is_writable and not state.HasField("following")
    return is_open and state.live_in_sync_count >= in_sync_count


@contextlib.contextmanager
def running_etcd(program: str, directory: Path, port: int, peer_port: int) -> Iterator[None]:
    """Runs an etcd of a single member for a block. The logs wait until it answers."""
    client, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    directory.mkdir(parents=True)
    flags = {
        "--data-dir": str(directory),
        "--listen-client-urls": client,
        "--advertise-client-urls": client,
        "--listen-peer-urls": peers,
        "--initial-advertise-peer-urls": peers,
        "--initial-cluster": f"default={peers}",
    }
    command = [program, *(part for flag in flags.items() for part in flag)]
    with (directory / "log").open("wb") as log:
        etcd = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        etcd.terminate()
        try:
            etcd.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            etcd.kill()
            etcd.wait()
