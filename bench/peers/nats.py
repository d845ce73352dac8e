# SPDX-License-Identifier: Apache-2.0
"""NATS JetStream: a server or three, a stream in files with four subjects, and its own Go client.

The ways of sending are the ways that measured best. JetStream writes and syncs message by message, but an atomic batch
is synced as a whole. Asynchronous persist mode gathers writes, too, but acknowledges before them, as no other system
does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.peers import go_build, java_build, node_build, python_build
from bench.peers.peer import Durability, Operation, Serving

READY = "Server is ready"
CLUSTER_READY = "metadata leader"
"""The message of each server of a cluster when it knows the leader that decides where streams are."""
NATS_CLIENT = "github.com/nats-io/nats.go"

ENVIRONMENT: Mapping[str, str] = {
    # Fewer collections for some tens of megabytes: about a tenth more messages for the same processor time.
    "GOGC": "400",
}
LOAD: Mapping[Durability, Mapping[str, str]] = {
    # Fast ingest: an acknowledgement for many messages, each of which is written to its file before.
    "async": {"publish": "fast", "persist": "default"},
    # Atomic batches of up to 1000 messages: the only way to have many messages for an fsync.
    "sync": {"publish": "atomic", "persist": "default"},
}
SEND: Mapping[Durability, str] = {
    "async": "fast ingest, up to min(--batch, 4000 messages) in flight",
    "sync": "atomic batches of min(--batch, 1000 messages), 4 in flight",
}


class Nats:
    """A server with an empty store for each measurement. The load generator makes the stream."""

    name = "NATS JetStream"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read", "receive"})
    count = 1

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the server's settings, the stream's and the client's."""
        return {
            **_jetstream(durability),
            **ENVIRONMENT,
            "stream": f"file storage, {self.count} replicas, 4 subjects, persist_mode={LOAD[durability]['persist']}",
            "client.append": SEND[durability],
            "client.latency": "Publish, 4 callers on a connection",
            "client.read": "ordered consumer of all subjects, 10000 messages asked for ahead",
            "client.receive": "durable pull consumer of all subjects, 4 fetches under way, DoubleAck of each message",
        }

    def prepare(self) -> Mapping[str, str]:
        """Build the server and its load generator."""
        go_build.build()
        modules = (go_build.NATS_SERVER, NATS_CLIENT)
        return {**{module: go_build.release(module) for module in modules}, "go": go_build.go_version()}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Serve from a store for each server in the folder."""
        targets = [f"127.0.0.1:{java_build.free_port()}" for _ in range(self.count)]
        routes = [f"127.0.0.1:{java_build.free_port()}" for _ in range(self.count)]
        starts = []
        for node, (target, route) in enumerate(zip(targets, routes, strict=True)):
            settings: dict[str, object] = {"listen": target, "server_name": f"n{node}"}
            settings["jetstream"] = {"store_dir": str(folder / f"data-{node}"), **_jetstream(durability)}
            if self.count > 1:
                others = [f"nats-route://{other}" for other in routes if other != route]
                settings["cluster"] = {"name": "bench", "listen": route, "routes": others}
            configuration = folder / f"nats-{node}.conf"
            configuration.write_text(json.dumps(settings))
            starts.append(
                java_build.Start(
                    words=[go_build.program("nats-server"), "--config", str(configuration)],
                    log_path=folder / f"nats-{node}.log",
                    ready=READY if self.count == 1 else CLUSTER_READY,
                    environment=ENVIRONMENT,
                )
            )
        stream = [word for name, value in LOAD[durability].items() for word in (f"--{name}", value)]
        stream += ["--replicas", str(self.count)]
        with java_build.servers(*starts) as pids:
            yield self._serving(",".join(targets), pids, stream)

    def _serving(self, target: str, pids: Sequence[int], stream: Sequence[str]) -> Serving:
        return Serving(
            target=target,
            pids=pids,
            load_command=(go_build.program("natsload"),),
            load_arguments={"append": stream, "latency": stream},
        )


class NatsByNode(Nats):
    """The same server by its client for Node.js, which has an acknowledgement for each message."""

    name = "NATS JetStream, Node client"
    operations: frozenset[Operation] = frozenset({"append"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Nats."""
        return {**super().settings(durability), "client.append": "up to min(--batch, 4000 messages) in flight"}

    def prepare(self) -> Mapping[str, str]:
        """Build the server and its load generators."""
        node_build.build()
        packages = ("@nats-io/jetstream", "@nats-io/transport-node")
        releases = {package: node_build.release(package) for package in packages}
        return {**super().prepare(), **releases, "node": node_build.node_version()}

    def _serving(self, target: str, pids: Sequence[int], stream: Sequence[str]) -> Serving:
        del stream
        return Serving(target=target, pids=pids, load_command=node_build.command("natsload.mjs"), load_arguments={})


class NatsByPython(Nats):
    """The same server by nats-py, its client for Python's asyncio, which has an acknowledgement for each message."""

    name = "NATS JetStream, nats-py"
    operations: frozenset[Operation] = frozenset({"append"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Nats."""
        return {**super().settings(durability), "client.append": "up to min(--batch, 4000 messages) in flight, uvloop"}

    def prepare(self) -> Mapping[str, str]:
        """Build the server, and fetch the client."""
        python_build.build()
        return {**super().prepare(), "nats-py": python_build.release("nats-py")}

    def _serving(self, target: str, pids: Sequence[int], stream: Sequence[str]) -> Serving:
        del stream
        return Serving(target=target, pids=pids, load_command=python_build.command("natspyload.py"), load_arguments={})


class NatsCluster(Nats):
    """Three servers, each of which has the stream; two of them have to store a message before it is acknowledged."""

    name = "NATS JetStream, 3 replicas"
    operations: frozenset[Operation] = frozenset({"append", "latency"})
    count = 3


def _jetstream(durability: Durability) -> Mapping[str, str]:
    """Ask for an fsync before each acknowledgement, or the server's default: every two minutes."""
    return {"sync_interval": "always"} if durability == "sync" else {}
