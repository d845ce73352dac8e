# SPDX-License-Identifier: Apache-2.0
"""RocketMQ 5's own client for Java before Reput's gateway, that gateway without a store, and RocketMQ's proxy.

The proxy runs in its local mode: in the same process as its broker, like a small installation.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import store
from bench.batches import QUEUE_COUNT, TOPIC
from bench.peers import java_build
from bench.peers.peer import Durability, Operation, Serving
from bench.peers.reput import Reput
from bench.peers.rocketmq import BROKER_JVM, NAME_SERVER_JVM, NAME_SERVER_READY, OPENS, RocketMq

CLIENT: Mapping[str, str] = {
    "client.append": "sendAsync, one producer for all threads, 64 messages under way for each of them",
    "client.latency": "send, one producer for all callers",
    "client.receive": "receive of 32 messages, then ackAsync of each, one simple consumer for all callers",
}
POP: Mapping[str, str] = {
    # Without it a broker gives nothing to groups that share messages: a message that is due again waits in the wheel.
    "timerWheelEnable": "true",
}
PROXY_MODULE, CLIENT_MODULE = "proxy", "gateway"
PROXY_READY = "rocketmq-proxy startup successfully"
TOPIC_TIMEOUT_S = 120


def _load(folder: Path) -> Sequence[str]:
    flags = [*java_build.LOAD_JVM, f"-Drocketmq.log.root={folder / 'client-logs'}", f"-Duser.home={folder}"]
    return java_build.command(CLIENT_MODULE, "io.reput.bench.GatewayLoad", flags)


def _release() -> Mapping[str, str]:
    java_build.build()
    name = "org.apache.rocketmq:rocketmq-client-java"
    return {name: java_build.release("rocketmq-client"), "java": java_build.java_version()}


class Gateway:
    """CommitLog, Indexer, Janitor, Delivery and a gateway. Their cost is the sum of all of them."""

    name = "Reput's gateway"
    operations: frozenset[Operation] = frozenset({"append", "latency", "receive"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        return {"REPUT_COMMITLOG_FLUSH_MODE": durability, **CLIENT}

    def prepare(self) -> Mapping[str, str]:
        """See Peer."""
        return {**Reput().prepare(), **_release()}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        with store.running(folder, durability) as running, store.gateway(running) as (target, pids):
            yield Serving(target, (*running.pids, *pids), _load(folder), {})


class EmptyGateway:
    """The gateway alone: the lower bound of a send's cost."""

    name = "Reput's gateway without a store"
    operations: frozenset[Operation] = frozenset({"latency"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        del durability
        return CLIENT

    def prepare(self) -> Mapping[str, str]:
        """See Peer."""
        return Gateway().prepare()

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        del durability
        with store.alone("bench.inside.empty_gateway") as (target, pid):
            yield Serving(target, (pid,), _load(folder), {})


class Proxy(RocketMq):
    """A name server, and a proxy with its broker in the same process. The broker has the settings of its other rows."""

    name = "Apache RocketMQ's proxy"
    operations: frozenset[Operation] = frozenset({"append", "latency", "receive"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """See Peer."""
        broker = {name: value for name, value in super().settings(durability).items() if "client." not in name}
        return {**broker, **POP, "proxyMode": "local", **CLIENT}

    def prepare(self) -> Mapping[str, str]:
        """See Peer."""
        return {"org.apache.rocketmq:rocketmq-proxy": java_build.release("rocketmq"), **_release()}

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """See Peer."""
        name_server = f"127.0.0.1:{java_build.free_port()}"
        names = folder / "namesrv.conf"
        names.write_text(f"bindAddress=127.0.0.1\nlistenPort={name_server.partition(':')[2]}\n")
        start = java_build.Start(
            words=[*_command("org.apache.rocketmq.namesrv.NamesrvStartup", NAME_SERVER_JVM, folder), "-c", str(names)],
            log_path=folder / "namesrv.log",
            ready=NAME_SERVER_READY,
            environment={"ROCKETMQ_HOME": str(folder)},
        )
        settings = {**self.broker_settings(folder, durability, name_server), **POP}
        port = java_build.free_port()
        proxy = self._proxy(folder, settings, name_server, port)
        with java_build.servers(start) as name_pids, java_build.servers(proxy) as pids:
            _make_topic(folder, f"127.0.0.1:{settings['listenPort']}", name_server)
            yield Serving(f"127.0.0.1:{port}", (*pids, *name_pids), _load(folder), {})

    def _proxy(self, folder: Path, broker: Mapping[str, str], name_server: str, port: int) -> java_build.Start:
        conf = folder / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in broker.items()))
        own = {
            "rocketMQClusterName": broker["brokerClusterName"],
            "proxyMode": "LOCAL",
            "grpcServerPort": port,
            "remotingListenPort": java_build.free_port(),
            "namesrvAddr": name_server,
            "brokerConfigPath": str(conf),
        }
        (folder / "proxy.json").write_text(json.dumps(own))
        command = _command("org.apache.rocketmq.proxy.ProxyStartup", (*self.heap, *BROKER_JVM), folder)
        return java_build.Start(
            words=[*command, "-pc", str(folder / "proxy.json"), "-pm", "local", "-bc", str(conf), "-n", name_server],
            log_path=folder / "proxy.log",
            ready=PROXY_READY,
            environment={"ROCKETMQ_HOME": str(folder), "RMQ_PROXY_HOME": str(folder)},
        )


def _make_topic(folder: Path, broker: str, name_server: str) -> None:
    """Make the topic that the loads use: the proxy makes no topic by itself."""
    command = _command("org.apache.rocketmq.tools.command.MQAdminStartup", NAME_SERVER_JVM, folder)
    words = ["updateTopic", "-n", name_server, "-b", broker, "-t", TOPIC]
    words += ["-r", str(QUEUE_COUNT), "-w", str(QUEUE_COUNT)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=TOPIC_TIMEOUT_S, check=False)
    if "success" not in done.stdout:
        raise RuntimeError(f"the topic could not be made: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def _command(main_class: str, flags: tuple[str, ...], folder: Path) -> list[str]:
    return java_build.command(PROXY_MODULE, main_class, [*flags, *OPENS, f"-Duser.home={folder}"])
