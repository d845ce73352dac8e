# SPDX-License-Identifier: Apache-2.0
"""The stages where cases run: a node, a guarded node, three replicas, and events there in the middle of a step."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reput_client.aio import connect

from libs.runtime.trust.tokens import find_local_token
from tests.support.certificates import OPENSSL, self_signed
from tests.support.etcd_server import ETCD, EtcdServer
from tests.support.patience import LIMIT_S, eventually
from tests.support.reput_up import Store, store
from tests.support.served_commitlog import Process as LogProcess
from tests.support.served_door import Process as GatewayProcess
from tests.support.served_indexer import Process as IndexProcess
from tests.support.service_process import ServiceProcess
from tests.support.surroundings import free_port

SERVICES = ("commitlog", "indexer", "delivery")
"""The services that the drivers call."""
GATEWAYS = ("store", "second_store")
CALM_S = 2.0
"""The time that a step runs before an event."""
LOOK_S = 0.1
TOKEN = "a-token-of-the-clients"
SEGMENT_SIZE = str(64 << 20)
"""Batches of the default size fit. A batch that has to be cut goes behind the batches that were sent meanwhile."""
SEGMENT_SIZE_FLAGS = ("--segment-size-bytes", SEGMENT_SIZE)

Harm = Callable[[Mapping[str, Any]], Awaitable[None]]
"""An event during a step, which gets the step."""


class Stage:
    """A store. `names` are the cases' names of its addresses, and `harms` are the possible events."""

    def __init__(
        self, names: Mapping[str, str], harms: Mapping[str, Harm], *, connects_with: Sequence[str] = ()
    ) -> None:
        self.names = {"nobody": f"127.0.0.1:{free_port()}", **names}
        self.harms = harms
        self.connection = {name: names[name] for name in ("store", *connects_with)}
        """The arguments with which a driver connects at the beginning of a case."""

    def without_gateway(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request with the addresses of the services in place of that of the store."""
        others = {name: value for name, value in request.items() if name != "store"}
        if len(others) == len(request):
            return request
        services = [name for name in SERVICES if name in self.names]
        return {name: request["store"].replace(self.names["store"], self.names[name]) for name in services} | others

    async def bodies(self, topic: str, queue_id: int, count: int) -> list[str]:
        """Wait until a queue shows `count` different bodies, and return all that it shows then, without their dots."""
        targets = {name: self.names.get(f"{name}s", self.names[name]) for name in ("commitlog", "indexer")}
        async with asyncio.timeout(LIMIT_S), connect(**targets) as client:
            while True:
                messages = [message async for message in client.query.by_time(topic, queue_id=queue_id)]
                found = [message.body.decode().rstrip(".") for message in messages]
                if len(set(found)) >= count:
                    return found
                await asyncio.sleep(LOOK_S)


class OneNode:
    """A CommitLog, an Indexer and two gateways as processes at ports that stay the same."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = {name: str(free_port()) for name in ("commitlog", "indexer", *GATEWAYS)}
        self._children: dict[str, ServiceProcess] = {}

    async def start_commitlog(self) -> None:
        """Start the CommitLog on its directory and port."""
        self._children["commitlog"] = await LogProcess.start(
            self._directory / "log", "--port", self._ports["commitlog"], *SEGMENT_SIZE_FLAGS
        )
        await self._children["commitlog"].wait_serving()

    async def start_indexer(self) -> None:
        """Start the Indexer on its directory and port."""
        target = f"127.0.0.1:{self._ports['commitlog']}"
        self._children["indexer"] = await IndexProcess.start(
            self._directory / "index", "--port", self._ports["indexer"], "--commitlog-target", target
        )
        await self._children["indexer"].wait_serving()

    async def start_gateway(self, name: str) -> None:
        """Start a gateway on its port."""
        self._children[name] = await gateway_of(self.names, "--port", self._ports[name])

    async def restart_commitlog(self, _: Mapping[str, Any]) -> None:
        """Kill the CommitLog, and start it again."""
        await self._children["commitlog"].end(signal.SIGKILL)
        await self.start_commitlog()

    async def restart_gateway(self, _: Mapping[str, Any]) -> None:
        """Kill the first gateway, and start it again."""
        await self._children["store"].end(signal.SIGKILL)
        await self.start_gateway("store")

    async def restart_gateway_and_send_50(self, step: Mapping[str, Any]) -> None:
        """Kill the first gateway, append 50 further messages, and start it again."""
        await self._children["store"].end(signal.SIGKILL)
        await self._send_50(step["topic"])
        await self.start_gateway("store")

    async def restart_indexer_and_send_50(self, step: Mapping[str, Any]) -> None:
        """Kill the Indexer, append 50 further messages, and start it again."""
        await self._children["indexer"].end(signal.SIGKILL)
        await self._send_50(step["topic"])
        await self.start_indexer()

    async def _send_50(self, topic: str) -> None:
        async with connect(commitlog=self.names["commitlog"]) as client, client.producer() as producer:
            for number in range(100, 150):
                await producer.send(topic, f"m{number}".encode(), queue_id=0)

    @property
    def names(self) -> dict[str, str]:
        """The addresses of the services."""
        return {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}

    async def end(self) -> None:
        """Stop all services."""
        for name in (*GATEWAYS, "indexer", "commitlog"):
            if name in self._children:
                await self._children[name].end()


@contextlib.asynccontextmanager
async def one_node(directory: Path) -> AsyncIterator[Stage]:
    """A node that asks for no certificate and no token."""
    node = OneNode(directory)
    try:
        await node.start_commitlog()
        await node.start_indexer()
        for name in GATEWAYS:
            await node.start_gateway(name)
        harms = (
            *(node.restart_commitlog, node.restart_indexer_and_send_50),
            *(node.restart_gateway, node.restart_gateway_and_send_50),
        )
        yield Stage(node.names, {harm.__name__: harm for harm in harms})
    finally:
        await node.end()


@contextlib.asynccontextmanager
async def guarded(directory: Path) -> AsyncIterator[Stage]:
    """Server and clients check certificates, and a token is required."""
    files = {name: str(path) for name, path in self_signed(directory, "server", "client").items()}
    (directory / "token").write_text(TOKEN)
    tls = (
        *("--tls-certificate-file", files["server.pem"], "--tls-key-file", files["server.key"]),
        *("--tls-client-ca-file", files["client.pem"]),
    )
    flags = (*tls, "--token-file", str(directory / "token"))
    to_log = (
        *("--commitlog-tls-ca-file", files["server.pem"], "--commitlog-tls-certificate-file", files["client.pem"]),
        *("--commitlog-tls-key-file", files["client.key"]),
    )
    async with contextlib.AsyncExitStack() as stack:
        log = await LogProcess.start(directory / "log", *flags, *SEGMENT_SIZE_FLAGS)
        stack.push_async_callback(log.end)
        await log.wait_serving()
        target = f"localhost:{log.port}"
        index = await IndexProcess.start(directory / "index", *flags, "--commitlog-target", target, *to_log)
        stack.push_async_callback(index.end)
        await index.wait_serving()
        services = {"commitlog": target, "indexer": f"localhost:{index.port}"}
        to_services = (text.replace("--commitlog-", f"--{name}-") for name in SERVICES for text in to_log)
        door = await gateway_of(services, *tls, *to_services)
        stack.push_async_callback(door.end)
        names = {
            **services,
            "store": f"localhost:{door.port}",
            "token": TOKEN,
            "ca_file": files["server.pem"],
            "certificate_file": files["client.pem"],
            "key_file": files["client.key"],
        }
        yield Stage(names, {})


@contextlib.asynccontextmanager
async def three_replicas(directory: Path) -> AsyncIterator[Stage]:
    """`reput up --replicas 3`, with elections by etcd."""
    with _replicas(directory) as running:

        def is_in_sync() -> bool:
            return [row.get("is_in_sync") for row in _rows(running)] == [True] * 3

        async def kill_leader(_: Mapping[str, Any]) -> None:
            leader = next(row for row in _rows(running) if row["state"] == "LEADING")
            os.kill(running.child("commitlog", leader["target"].rsplit(":", 1)[1]), signal.SIGKILL)

        await eventually(is_in_sync)
        logs = ",".join(row["target"] for row in _rows(running))
        door = await gateway_of({**running.targets, "commitlog": logs})
        names = {**running.targets, "commitlogs": logs, "indexers": running.targets["indexer"]}
        try:
            yield Stage({**names, "store": f"127.0.0.1:{door.port}"}, {"kill_leader": kill_leader})
        finally:
            await door.end()


@contextlib.contextmanager
def _replicas(directory: Path) -> Iterator[Store]:
    etcd = EtcdServer(directory / "etcd")
    etcd.start()
    try:
        flags = ("--replicas", "3", "--etcd", etcd.target)
        with store(directory / "data", *flags, extra={"REPUT_COMMITLOG_SEGMENT_SIZE_BYTES": SEGMENT_SIZE}) as running:
            yield running
    finally:
        etcd.kill()


def _rows(running: Store) -> list[Any]:
    return running.run("replicas", "--json").rows


@contextlib.asynccontextmanager
async def with_delivery(directory: Path) -> AsyncIterator[Stage]:
    """`reput up` with a Delivery, which serves sharing groups, delayed messages and transactions."""
    with store(directory, "--delivery", "--delivery-port", "0") as running:
        token = find_local_token(running.targets.values()) or ""  # an operator's
        door = await gateway_of(running.targets)
        names = {**running.targets, "store": f"127.0.0.1:{door.port}", "token": token}
        try:
            yield Stage(names, {}, connects_with=("token",))
        finally:
            await door.end()


async def gateway_of(targets: Mapping[str, str], *flags: str) -> GatewayProcess:
    """Start a gateway with the APIs of these services, which serves RocketMQ's protocol only with a Delivery."""
    nobody = f"127.0.0.1:{free_port()}"
    named = [text for name in SERVICES for text in (f"--{name}-target", targets.get(name, nobody))]
    return await (await GatewayProcess.start(Path(), *named, *flags)).wait_serving()


STAGES: Mapping[str, Callable[[Path], contextlib.AbstractAsyncContextManager[Stage]]] = {
    "one node": one_node,
    "guarded": guarded,
    "three replicas": three_replicas,
    "with Delivery": with_delivery,
}


def missing(stage: str) -> str:
    """Return the tool that this machine lacks for a stage, "" if nothing is missing."""
    if stage == "three replicas" and ETCD is None:
        return "etcd (Debian: etcd-server)"
    return "openssl" if stage == "guarded" and OPENSSL is None else ""
