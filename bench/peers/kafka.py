# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka: a KRaft process or three that are broker and controller, and its own Java client."""

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.peers import java_build, python_build
from bench.peers.peer import Durability, Operation, Serving

MODULE = "kafka"
READY = "Kafka Server started"
# As bin/kafka-run-class.sh has them (KAFKA_JVM_PERFORMANCE_OPTS).
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
SERVER_LOGGING = (*LOGGING, "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info")

BROKER: Mapping[str, str] = {
    # Each process is both.
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    # The topic is made when a client first asks for it.
    "num.partitions": "4",
    # A batch of the stream may be larger than the default of 1 MiB.
    "message.max.bytes": str(8 << 20),
    # The default of 100 KiB is for networks; -1 leaves the size to the system, which knows the loopback.
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
}
ALONE: Mapping[str, str] = {
    # A single replica of everything.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
CLUSTER: Mapping[str, str] = {
    # acks=all waits for all replicas that keep up, and two have to; replicas answer as usual, before they sync.
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
SYNC: Mapping[str, str] = {
    # fsync before the answer to each produce request, once for each batch of a partition in it. Kafka has no group
    # commit: nothing joins the batches of several requests or partitions into a single fsync.
    "log.flush.interval.messages": "1",
}


class Kafka:
    """A broker that is formatted and started for each measurement."""

    name = "Apache Kafka"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read"})
    count = 1
    heap: Sequence[str] = java_build.SERVER_HEAP

    def broker(self, durability: Durability) -> Mapping[str, str]:
        """Return the settings that all brokers have."""
        return {**BROKER, **(SYNC if durability == "sync" else {}), **(ALONE if self.count == 1 else CLUSTER)}

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the settings of the broker, the JVM and the client."""
        client = {
            "client.append": "one producer for all threads, acks=all, idempotent, linger.ms=5, batch.size=--batch, "
            "max.in.flight=5, no compression, callbacks",
            "client.latency": "one producer for all callers, linger.ms=0",
            "client.read": "assign, max.partition.fetch.bytes=4 MiB, max.poll.records=10000",
        }
        return {**self.broker(durability), "jvm": " ".join((*self.heap, *JVM)), **client}

    def prepare(self) -> Mapping[str, str]:
        """Fetch Kafka and build its load generator."""
        java_build.build()
        return {"org.apache.kafka:kafka_2.13": java_build.release("kafka"), "java": java_build.java_version()}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Format a data directory for each broker in the folder and serve from them."""
        ids = range(1, self.count + 1)
        targets = {node: f"127.0.0.1:{java_build.free_port()}" for node in ids}
        controllers = {node: f"127.0.0.1:{java_build.free_port()}" for node in ids}
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        starts = []
        for node in ids:
            properties = folder / f"server-{node}.properties"
            places = {
                "node.id": str(node),
                "log.dirs": str(folder / f"data-{node}"),
                "listeners": f"PLAINTEXT://{targets[node]},CONTROLLER://{controllers[node]}",
                "controller.quorum.voters": ",".join(f"{voter}@{target}" for voter, target in controllers.items()),
            }
            lines = [f"{name}={value}\n" for name, value in {**self.broker(durability), **places}.items()]
            properties.write_text("".join(lines))
            _format(properties, cluster)
            words = [*java_build.command(MODULE, "kafka.Kafka", [*self.heap, *JVM, *SERVER_LOGGING]), str(properties)]
            starts.append(java_build.Start(words=words, log_path=folder / f"kafka-{node}.log", ready=READY))
        with java_build.servers(*starts) as pids:
            target = ",".join(targets.values())
            yield Serving(target=target, pids=pids, load_command=self._load_command(), load_arguments={})

    def _load_command(self) -> Sequence[str]:
        return java_build.command(MODULE, "io.reput.bench.KafkaLoad", [*java_build.LOAD_JVM, *LOGGING])


class KafkaByConfluent(Kafka):
    """The same broker by confluent-kafka, the client for Python on librdkafka."""

    name = "Apache Kafka, confluent-kafka"
    operations: frozenset[Operation] = frozenset({"append"})
    package, program = "confluent-kafka", "confluentload.py"
    client = "one producer, acks=all, idempotent, linger.ms=5, batch.size=--batch, no compression, delivery reports"

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Kafka."""
        return {**super().settings(durability), "client.append": self.client}

    def prepare(self) -> Mapping[str, str]:
        """Fetch Kafka and the client."""
        python_build.build()
        return {**super().prepare(), self.package: python_build.release(self.package)}

    def _load_command(self) -> Sequence[str]:
        return python_build.command(self.program)


class KafkaByAio(KafkaByConfluent):
    """The same broker by aiokafka, the client for Python's asyncio."""

    name = "Apache Kafka, aiokafka"
    package, program = "aiokafka", "aiokafkaload.py"
    client = "one producer, acks=all, idempotent, linger_ms=5, max_batch_size=--batch, no compression, uvloop"


class KafkaCluster(Kafka):
    """Three brokers, each of which has everything."""

    name = "Apache Kafka, 3 replicas"
    operations: frozenset[Operation] = frozenset({"append", "latency"})
    count = 3
    heap = java_build.CLUSTER_HEAP


def _format(properties: Path, cluster: str) -> None:
    tool = java_build.command(MODULE, "kafka.tools.StorageTool", LOGGING)
    words = [*tool, "format", f"--cluster-id={cluster}", "--config", str(properties)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Kafka can't format {properties}:\n{done.stdout}\n{done.stderr}")
