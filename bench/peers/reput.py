# SPDX-License-Identifier: Apache-2.0
"""Reput itself: CommitLog, Indexer and Janitor as processes, and its engine alone beside RocketMQ's store."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from bench import store
from bench.peers import go_build, java_build, node_build
from bench.peers.peer import Durability, Operation, Serving

REPLICA_COUNT = 3
LEADER: Mapping[str, str] = {"REPUT_COMMITLOG_ROLE": "sync_master"}
GRPC_GO = "google.golang.org/grpc"
PACKAGES = ("grpcio", "ngh2", "protobuf", "uvloop", "isal", "cython")


class Reput:
    """All three services. Clients are Python, in a single process."""

    name = "Reput"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read", "lookup"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        return {"REPUT_COMMITLOG_FLUSH_MODE": durability}

    def prepare(self) -> Mapping[str, str]:
        """See Peer. Everything is in the environment that runs this."""
        return {"reput": version("reput-server"), **{name: version(name) for name in PACKAGES}}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        with store.running(folder, durability) as running:
            indexer = ("--indexer", running.indexer)
            yield Serving(
                target=running.commitlog,
                pids=running.pids,
                load_command=(sys.executable, "-m", "bench.load"),
                load_arguments={
                    "append": (*indexer, "--durability", durability),
                    "latency": ("--durability", durability),
                    "read": indexer,
                    "lookup": indexer,
                },
            )


class ReputSharing(Reput):
    """Delivery beside the other services, for a group whose members share messages."""

    name = "Reput's Delivery"
    operations: frozenset[Operation] = frozenset({"append", "receive"})

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        with store.running(folder, durability) as running, store.delivering(running) as (delivery, delivery_pid):
            yield Serving(
                target=running.commitlog,
                pids=(*running.pids, delivery_pid),
                load_command=(sys.executable, "-m", "bench.load"),
                load_arguments={
                    "append": ("--indexer", running.indexer, "--durability", durability),
                    "receive": ("--delivery", delivery),
                },
            )


class ByLanguage(Reput):
    """Reput by a client in another language: single messages, which the client batches, or sends in a call each."""

    operations: frozenset[Operation] = frozenset({"append", "latency"})
    front = "http2"

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        return {**super().settings(durability), "REPUT_COMMITLOG_FRONT": self.front, "connections": "1"}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        with store.running(folder, durability, REPUT_COMMITLOG_FRONT=self.front) as running:
            yield self._serving(running.commitlog, running.pids, durability, indexer=running.indexer)

    def _serving(self, target: str, pids: Sequence[int], durability: Durability, *, indexer: str = "") -> Serving:
        writing, reading = ("--durability", durability), ("--indexer", indexer)
        arguments: dict[str, Sequence[str]] = {
            operation: writing if operation in ("append", "latency") else reading for operation in self.operations
        }
        return Serving(target=target, pids=pids, load_command=self._load_command(), load_arguments=arguments)

    def _load_command(self) -> Sequence[str]:
        raise NotImplementedError


class ReputByGo(ByLanguage):
    """Reput by a client in Go."""

    name = "Reput, Go client"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read", "lookup"})

    def prepare(self) -> Mapping[str, str]:
        """See Peer."""
        go_build.build()
        return {**super().prepare(), GRPC_GO: go_build.release(GRPC_GO), "go": go_build.go_version()}

    def _load_command(self) -> Sequence[str]:
        return (go_build.program("reputload"),)


class ReputByJava(ByLanguage):
    """Reput by a client in Java."""

    name = "Reput, Java client"

    def prepare(self) -> Mapping[str, str]:
        """See Peer."""
        java_build.build()
        return {**super().prepare(), "grpc-java": java_build.release("grpc"), "java": java_build.java_version()}

    def _load_command(self) -> Sequence[str]:
        return java_build.command("reput", "io.reput.bench.ReputLoad", java_build.LOAD_JVM)


class ReputByNode(ByLanguage):
    """Reput by the client for Node.js, in its single thread."""

    name = "Reput, Node client"
    operations: frozenset[Operation] = frozenset({"append"})

    def prepare(self) -> Mapping[str, str]:
        """See Peer."""
        node_build.build()
        return {**super().prepare(), "node": node_build.node_version()}

    def _load_command(self) -> Sequence[str]:
        return node_build.command("reputload.mjs")


class GrpcioByGo(ReputByGo):
    """Calls on gRPC's own server."""

    operations: frozenset[Operation] = frozenset({"latency"})
    name = "Reput on grpcio, Go client"
    front = "grpcio"


class FrontByGo(ReputByGo):
    """The front without a store."""

    name = "Front http2 alone, Go client"
    operations: frozenset[Operation] = frozenset({"latency"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        del durability
        return {"front": self.front}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        del folder
        with store.front_alone(self.front) as (target, pid):
            yield self._serving(target, (pid,), durability)


class GrpcioFrontByGo(FrontByGo):
    """The same of gRPC's own server."""

    name = "Front grpcio alone, Go client"
    front = "grpcio"


class ReputCluster(Reput):
    """Three copies of all services, the first of which leads; an acknowledgement waits for the disks of all."""

    name = "Reput, 3 replicas"
    operations: frozenset[Operation] = frozenset({"append", "latency"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        return {**super().settings(durability), **LEADER, "reput up": f"--replicas {REPLICA_COUNT}"}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        with store.replicated(folder, durability, REPLICA_COUNT, **LEADER) as running:
            asked = ("--durability", "replicated")
            yield Serving(
                target=running.commitlog,
                pids=running.pids,
                load_command=(sys.executable, "-m", "bench.load"),
                load_arguments={"append": ("--indexer", running.indexer, *asked), "latency": asked},
            )


class ReputStore:
    """The CommitLog engine inside the load generator: no network, no Indexer."""

    name = "Reput, store alone"
    operations: frozenset[Operation] = frozenset({"append"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        return {"flush_mode": durability}

    def prepare(self) -> Mapping[str, str]:
        """See Peer."""
        return Reput().prepare()

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer. The target is the folder, and the load generator is the server."""
        yield Serving(
            target=str(folder),
            pids=(),
            load_command=(sys.executable, "-m", "bench.load.engine"),
            load_arguments={"append": ("--durability", durability)},
        )
