# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ: a name server, a broker or three, its own Java client, and its message store alone in a process."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.peers import java_build
from bench.peers.peer import Durability, Operation, Serving

MODULE = "rocketmq"
BROKER_READY = "boot success"
NAME_SERVER_READY = "The Name Server boot success"
FAST_PORT_DISTANCE = 2  # a broker also listens this far below its port

# RocketMQ unmaps files through classes that Java no longer shows.
OPENS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
# As bin/runbroker.sh has them, but for the size of the heap and for touching all of it at the start.
BROKER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:MaxDirectMemorySize=15g",
    "-XX:-UseLargePages",
)
STORE_JVM = (*java_build.SERVER_HEAP, *BROKER_JVM)
NAME_SERVER_JVM = ("-Xms256m", "-Xmx256m", "-server", "-XX:+UseG1GC")

STORE: Mapping[str, str] = {
    # Nothing may be refused or expire because the disk of the measuring machine is nearly full.
    "diskMaxUsedSpaceRatio": "95",
    "fileReservedTime": "100000",
    # A batch of the stream may be as large as the client's default limit of 4 MiB, and is larger when stored.
    "maxMessageSize": str(8 << 20),
    # Delayed messages are not measured; their wheel would write beside the log.
    "timerWheelEnable": "false",
}
ASYNC: Mapping[str, str] = {
    # Records go straight to the mapped file, so a killed broker has all that it acknowledged. With the pool of locked
    # memory it does not, which would be another durability than that of the others.
    "flushDiskType": "ASYNC_FLUSH",
}
SYNC: Mapping[str, str] = {
    # A group commit: a single fsync for all messages appended since the previous fsync began.
    "flushDiskType": "SYNC_FLUSH",
}
BROKER: Mapping[str, str] = {
    # Queueing is part of the measurement: no "system busy" or "broker busy" because a request waited.
    "osPageCacheBusyTimeOutMills": "60000",
    "waitTimeMillsInSendQueue": "60000",
    "syncFlushTimeout": "60000",
    # The defaults give a consumer 32 messages or 256 KiB for a request.
    "maxTransferCountOnMessageInMemory": "4096",
    "maxTransferBytesOnMessageInMemory": str(4 << 20),
    "maxTransferCountOnMessageInDisk": "4096",
    "maxTransferBytesOnMessageInDisk": str(4 << 20),
}
# The names of cluster and broker are names of topics, too, so they differ from the topic's name.
PLACE: Mapping[str, str] = {
    "brokerClusterName": "cluster",
    "brokerName": "broker",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
}


LEADER: Mapping[str, str] = {
    # An acknowledgement waits until all that follow have the message in their files.
    "brokerRole": "SYNC_MASTER",
}
FOLLOWER: Mapping[str, str] = {
    # It learns of the leader from the name server, when it registers; an address of its own settings is lost, because
    # the broker tells it to a store that has no service for replicas yet.
    "brokerRole": "SLAVE",
    "registerNameServerPeriod": "10000",
}


class RocketMq:
    """A name server and a broker, started for each measurement."""

    name = "Apache RocketMQ"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read", "lookup"})
    count = 1
    heap: Sequence[str] = java_build.SERVER_HEAP

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the settings of the broker, the JVM and the client."""
        client = {
            "client.append": "send(Collection, callback) of prebuilt messages, one producer for all threads, "
            "8 batches under way for each of them",
            "client.latency": "send(message), one producer for all callers",
            "client.read": "pull of 4096 messages, one thread for each queue",
            "client.lookup": "queryMessage(key), newest match",
        }
        broker = {**_store(durability), **BROKER, **self.of_leader()}
        return {**broker, "jvm": " ".join((*self.heap, *BROKER_JVM)), **client}

    def of_leader(self) -> Mapping[str, str]:
        """Return the settings that distinguish the first broker from its followers."""
        return {**LEADER, "inSyncReplicas": str(self.count), "totalReplicas": str(self.count)} if self.count > 1 else {}

    def prepare(self) -> Mapping[str, str]:
        """Fetch RocketMQ and build its load generators."""
        return _prepare()

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Serve from the folder. The target of the clients is the name server."""
        target = f"127.0.0.1:{java_build.free_port()}"
        names = _write(folder / "namesrv.conf", {"bindAddress": "127.0.0.1", "listenPort": target.partition(":")[2]})
        name_server = java_build.Start(
            words=[
                *_command("org.apache.rocketmq.namesrv.NamesrvStartup", NAME_SERVER_JVM, folder), "-c", str(names)
            ],
            log_path=folder / "namesrv.log",
            ready=NAME_SERVER_READY,
            environment={"ROCKETMQ_HOME": str(folder)},
        )  # fmt: skip
        replica_ports = [java_build.free_port() for _ in range(self.count)]
        brokers = [
            self._broker(folder / f"broker-{number}", durability, target, number, port)
            for number, port in enumerate(replica_ports)
        ]
        with java_build.servers(name_server) as names_pids, java_build.servers(*brokers) as pids:
            _wait_for_replicas(pids[0], replica_ports[0], self.count - 1)
            load = _command("io.reput.bench.RocketMqLoad", java_build.LOAD_JVM, folder)
            yield Serving(target=target, pids=(*pids, *names_pids), load_command=load, load_arguments={})

    def broker_settings(self, folder: Path, durability: Durability, name_server: str) -> dict[str, str]:
        """Return the settings of a broker by itself, at a free port."""
        return {
            **_store(durability),
            **BROKER,
            **PLACE,
            **_paths(folder),
            "namesrvAddr": name_server,
            "listenPort": str(java_build.free_port(below=FAST_PORT_DISTANCE)),
            "haListenPort": str(java_build.free_port()),
        }

    def _broker(
        self, folder: Path, durability: Durability, name_server: str, number: int, replica_port: int
    ) -> java_build.Start:
        """Return how a broker is started, of which the first leads."""
        folder.mkdir()
        settings = {**self.broker_settings(folder, durability, name_server), "brokerId": str(number)}
        settings |= FOLLOWER if number else self.of_leader()
        broker = _write(folder / "broker.conf", {**settings, "haListenPort": str(replica_port)})
        command = _command("org.apache.rocketmq.broker.BrokerStartup", (*self.heap, *BROKER_JVM), folder)
        return java_build.Start(
            words=[*command, "-c", str(broker)],
            log_path=folder / "broker.log",
            ready=BROKER_READY,
            environment={"ROCKETMQ_HOME": str(folder)},
        )


class RocketMqCluster(RocketMq):
    """A broker and two that follow it."""

    name = "Apache RocketMQ, 3 replicas"
    operations: frozenset[Operation] = frozenset({"append", "latency"})
    count = 3
    heap = java_build.CLUSTER_HEAP


class RocketMqStore:
    """DefaultMessageStore in the process of its load: RocketMQ's storing without serving."""

    name = "Apache RocketMQ store, in process"
    operations: frozenset[Operation] = frozenset({"append", "latency"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the settings of the store and the JVM, and the calls."""
        calls = {
            "call.append": "asyncPutMessages of prebuilt, encoded batches, 8 of them under way for each thread",
            "call.latency": "putMessage",
        }
        return {**_store(durability), "jvm": " ".join(STORE_JVM), **calls}

    def prepare(self) -> Mapping[str, str]:
        """Fetch RocketMQ and build its load generators."""
        return _prepare()

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Write the settings: there is no server, and the load opens the store that they name."""
        settings = _write(folder / "store.conf", {**_store(durability), **_paths(folder)})
        load = _command("io.reput.bench.RocketMqStoreLoad", STORE_JVM, folder)
        yield Serving(target=str(settings), pids=(), load_command=load, load_arguments={})


def _wait_for_replicas(pid: int, port: int, count: int) -> None:
    """Wait until so many follow a broker. Raises RuntimeError when they don't come."""
    deadline_s = time.monotonic() + java_build.START_TIMEOUT_S
    while sum(_is_taken(one, port) for one in psutil.Process(pid).net_connections()) < count:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not all {count} replicas follow the broker at port {port}")
        time.sleep(0.1)


def _is_taken(connection: Any, port: int) -> bool:
    """Return whether a client has connected to this port of a process."""
    return bool(connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED)


def _prepare() -> Mapping[str, str]:
    java_build.build()
    return {"org.apache.rocketmq:rocketmq-broker": java_build.release("rocketmq"), "java": java_build.java_version()}


def _store(durability: Durability) -> Mapping[str, str]:
    return {**STORE, **(SYNC if durability == "sync" else ASYNC)}


def _paths(folder: Path) -> Mapping[str, str]:
    return {"storePathRootDir": str(folder / "store"), "storePathCommitLog": str(folder / "store" / "commitlog")}


def _write(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def _command(main_class: str, flags: tuple[str, ...], folder: Path) -> list[str]:
    # Logs and the files of the client go below the home directory of the user, which is the folder here.
    return java_build.command(MODULE, main_class, [*flags, *OPENS, f"-Duser.home={folder}"])
