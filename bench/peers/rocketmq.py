# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ: a name server and a broker with its own Java client, and its message store alone in a process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
    *java_build.SERVER_HEAP,
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
    # A group commit: one fsync for all that was appended since the last one began.
    "flushDiskType": "SYNC_FLUSH",
}
BROKER: Mapping[str, str] = {
    # Queueing is part of what is measured: no "system busy" or "broker busy" because a request waited.
    "osPageCacheBusyTimeOutMills": "60000",
    "waitTimeMillsInSendQueue": "60000",
    "syncFlushTimeout": "60000",
    # The defaults give a consumer 32 messages or 256 KiB for a request.
    "maxTransferCountOnMessageInMemory": "4096",
    "maxTransferBytesOnMessageInMemory": str(4 << 20),
    "maxTransferCountOnMessageInDisk": "4096",
    "maxTransferBytesOnMessageInDisk": str(4 << 20),
}
# The names of cluster and broker are those of topics too, so they differ from the topic's.
PLACE: Mapping[str, str] = {
    "brokerClusterName": "cluster",
    "brokerName": "broker",
    "brokerId": "0",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
}


class RocketMq:
    """A name server and a broker, started for each measurement."""

    name = "Apache RocketMQ"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read", "lookup"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the broker's settings, those of the JVM and the client's."""
        client = {
            "client.append": "send(Collection, callback) of prebuilt messages, one producer for all threads, "
            "8 batches under way for each of them",
            "client.latency": "send(message), one producer for all callers",
            "client.read": "pull of 4096 messages, one thread for each queue",
            "client.lookup": "queryMessage(key), newest match",
        }
        return {**_store(durability), **BROKER, "jvm": " ".join(BROKER_JVM), **client}

    def prepare(self) -> Mapping[str, str]:
        """Fetch RocketMQ and build its load generators."""
        return _prepare()

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Serve from the folder. The target of the clients is the name server."""
        target = f"127.0.0.1:{java_build.free_port()}"
        names = _write(folder / "namesrv.conf", {"bindAddress": "127.0.0.1", "listenPort": target.partition(":")[2]})
        port = java_build.free_port(below=FAST_PORT_DISTANCE)
        settings = {**_store(durability), **BROKER, **PLACE, **_paths(folder)}
        settings |= {"namesrvAddr": target, "listenPort": str(port)}
        broker = _write(folder / "broker.conf", settings)
        environment = {"ROCKETMQ_HOME": str(folder)}
        with (
            java_build.server(
                [*_command("org.apache.rocketmq.namesrv.NamesrvStartup", NAME_SERVER_JVM, folder), "-c", str(names)],
                log_path=folder / "namesrv.log",
                ready=NAME_SERVER_READY,
                environment=environment,
            ) as name_server_pid,
            java_build.server(
                [*_command("org.apache.rocketmq.broker.BrokerStartup", BROKER_JVM, folder), "-c", str(broker)],
                log_path=folder / "broker.log",
                ready=BROKER_READY,
                environment=environment,
            ) as broker_pid,
        ):
            load = _command("io.reput.bench.RocketMqLoad", java_build.LOAD_JVM, folder)
            yield Serving(target=target, pids=(broker_pid, name_server_pid), load_command=load, load_arguments={})


class RocketMqStore:
    """DefaultMessageStore in the process of its load: what RocketMQ stores when it need not serve."""

    name = "Apache RocketMQ store, in process"
    operations: frozenset[Operation] = frozenset({"append", "latency"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the store's settings, those of the JVM and the calls."""
        calls = {
            "call.append": "asyncPutMessages of prebuilt, encoded batches, 8 of them under way for each thread",
            "call.latency": "putMessage",
        }
        return {**_store(durability), "jvm": " ".join(BROKER_JVM), **calls}

    def prepare(self) -> Mapping[str, str]:
        """Fetch RocketMQ and build its load generators."""
        return _prepare()

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Write the settings: there is no server, and the load opens the store that they name."""
        settings = _write(folder / "store.conf", {**_store(durability), **_paths(folder)})
        load = _command("io.reput.bench.RocketMqStoreLoad", BROKER_JVM, folder)
        yield Serving(target=str(settings), pids=(), load_command=load, load_arguments={})


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
