# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka: one KRaft process that is broker and controller, and its own Java client."""

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.peers import java_build
from bench.peers.peer import Durability, Operation, Serving

MODULE = "kafka"
READY = "Kafka Server started"
# As bin/kafka-run-class.sh has them (KAFKA_JVM_PERFORMANCE_OPTS).
JVM = (
    *java_build.SERVER_HEAP,
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
SERVER_LOGGING = (*LOGGING, "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info")

BROKER: Mapping[str, str] = {
    # One process and one replica of everything.
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # The topic is made when a client first asks for it.
    "num.partitions": "4",
    # A batch of the stream may be larger than the default of 1 MiB.
    "message.max.bytes": str(8 << 20),
    # The default of 100 KiB is for networks; -1 leaves the size to the system, which knows the loopback.
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
}
SYNC: Mapping[str, str] = {
    # fsync before the answer to each produce request, once for each batch of a partition in it. Kafka has no group
    # commit: nothing joins the batches of several requests or partitions into one fsync.
    "log.flush.interval.messages": "1",
}


class Kafka:
    """A broker that is formatted and started for each measurement."""

    name = "Apache Kafka"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the broker's settings, those of the JVM and the client's."""
        client = {
            "client.append": "one producer for all threads, acks=all, idempotent, linger.ms=5, batch.size=--batch, "
            "max.in.flight=5, no compression, callbacks",
            "client.latency": "one producer for all callers, linger.ms=0",
            "client.read": "assign, max.partition.fetch.bytes=4 MiB, max.poll.records=10000",
        }
        return {**_broker(durability), "jvm": " ".join(JVM), **client}

    def prepare(self) -> Mapping[str, str]:
        """Fetch Kafka and build its load generator."""
        java_build.build()
        return {"org.apache.kafka:kafka_2.13": java_build.release("kafka"), "java": java_build.java_version()}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Format a data directory in the folder and serve from it."""
        port, controller_port = java_build.free_port(), java_build.free_port()
        places = {
            "log.dirs": str(folder / "data"),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        }
        properties = folder / "server.properties"
        lines = [f"{name}={value}\n" for name, value in {**_broker(durability), **places}.items()]
        properties.write_text("".join(lines))
        _format(properties)
        words = [*java_build.command(MODULE, "kafka.Kafka", [*JVM, *SERVER_LOGGING]), str(properties)]
        load = java_build.command(MODULE, "io.reput.bench.KafkaLoad", [*java_build.LOAD_JVM, *LOGGING])
        with java_build.server(words, log_path=folder / "kafka.log", ready=READY) as pid:
            yield Serving(target=f"127.0.0.1:{port}", pids=(pid,), load_command=load, load_arguments={})


def _broker(durability: Durability) -> Mapping[str, str]:
    return {**BROKER, **SYNC} if durability == "sync" else BROKER


def _format(properties: Path) -> None:
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = java_build.command(MODULE, "kafka.tools.StorageTool", LOGGING)
    words = [*tool, "format", "--standalone", f"--cluster-id={cluster}", "--config", str(properties)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Kafka can't format {properties}:\n{done.stdout}\n{done.stderr}")
