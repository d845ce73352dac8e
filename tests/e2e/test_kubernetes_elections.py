# SPDX-License-Identifier: Apache-2.0
"""Three logs that elect one of them by a Lease of Kubernetes; with kube-apiserver itself: make test-kubernetes."""

import asyncio
import contextlib
import os
import random
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1.message_pb2 import DURABILITY_MEMORY, DURABILITY_REPLICATED

from tests.e2e.test_elections import Load, Trio, all_the_same, loaded
from tests.e2e.test_replication import T, compared
from tests.e2e.test_roles_at_run_time import bodies_of
from tests.support.kube_api_server import MISSING, WHY, KubeApiServer
from tests.support.lease_server import NAMESPACE, LeaseServer
from tests.support.patience import LIMIT_S, eventually

pytestmark = pytest.mark.e2e

FAILOVER_COUNT = int(os.environ.get("REPUT_FAILOVERS", "20"))
DEFAULTS = ("--lease-duration-ms", "5000", "--lease-renew-ms", "1500")
LABEL = "reput.dev/role"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class LeaseTrio(Trio):
    """Logs a, b and c, each in a pod of its name, or what the API server takes for one."""

    def __init__(self, directory: Path, stack: contextlib.AsyncExitStack, config_file: Path, *flags: str) -> None:
        super().__init__(directory, stack, *flags)
        self._config_file = config_file

    def coordinator(self, name: str) -> tuple[str, ...]:
        """The flags by which they find it."""
        where = ("--kubernetes-config-file", str(self._config_file), "--kubernetes-pod", name)
        return ("--coordinator", "kubernetes", *where)


@contextlib.asynccontextmanager
async def lease_trio(directory: Path, config_file: Path, *flags: str) -> AsyncIterator[LeaseTrio]:
    """All three, in sync."""
    async with contextlib.AsyncExitStack() as stack:
        logs = LeaseTrio(directory, stack, config_file, *flags)
        for name in "abc":
            await logs.start(name)
        await logs.leader(in_sync=3)
        yield logs


@pytest.fixture
async def server() -> AsyncIterator[LeaseServer]:
    """Where the Lease and the pods are."""
    made = LeaseServer()
    made.pods = {name: {} for name in "abc"}
    await made.start()
    yield made
    await made.stop()


async def check_leaders_die(logs: LeaseTrio, load: Load, roles: Callable[[], dict[str, str]], count: int) -> None:
    """Each time another one leads by itself, and its pod's label says so; nothing that was replicated is lost."""
    for _ in range(count):
        await asyncio.sleep(0.3)
        dead = await logs.leader(in_sync=3)
        epoch = (await logs.status(dead)).epoch
        await logs.processes[dead].end(signal.SIGKILL)
        new = await logs.leader(but=dead)
        assert (await logs.status(new)).epoch > epoch
        await eventually(lambda new=new: roles().get(new) == "leader")
        await logs.start(dead)
        await logs.leader(in_sync=3)
        await eventually(lambda dead=dead: roles().get(dead) == "follower")
    assert load.sent


async def test_leaders_die(tmp_path: Path, server: LeaseServer) -> None:
    """Another one leads by itself; the dead one comes back as a follower; all logs are the same in the end."""

    def roles() -> dict[str, str]:
        return {name: pod.get("labels", {}).get(LABEL, "") for name, pod in server.pods.items()}

    async with lease_trio(tmp_path, server.config_file(tmp_path), "--role", "sync_master") as logs:
        async with loaded(logs) as load:
            await check_leaders_die(logs, load, roles, 2)
        leader = await logs.leader(in_sync=3)
        load.check(await bodies_of(logs.clients[leader]))
        await all_the_same(logs, leader)
    assert compared(tmp_path) > len(load.sent)


async def test_leaders_stop(tmp_path: Path, server: LeaseServer) -> None:
    """An orderly stop hands over, and nobody waits for the lease's end; the pod's label goes with it."""
    async with lease_trio(tmp_path, server.config_file(tmp_path), "--lease-duration-ms", "60000") as logs:
        leader = await logs.leader(in_sync=3)
        began_s = time.monotonic()
        await logs.processes[leader].end(signal.SIGTERM)
        await logs.leader(but=leader)
        assert time.monotonic() - began_s < 48  # the lease's own end
        assert server.pods[leader]["labels"] == {LABEL: "follower"}


async def test_without_api_server(tmp_path: Path, server: LeaseServer) -> None:
    """The leader goes on while all others promise not to stand, and no longer; one leads again when it is back."""
    async with lease_trio(tmp_path, server.config_file(tmp_path)) as logs:
        leader = await logs.leader(in_sync=3)
        epoch = (await logs.status(leader)).epoch
        await server.stop()
        await asyncio.sleep(3)  # the lease is over after 2
        found = await logs.status(leader)
        assert (found.epoch, found.is_writable) == (epoch, True)
        assert "promised" in found.election.decision, found.election
        await logs.processes[next(name for name in "abc" if name != leader)].end(signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            while (found := await logs.status(leader)).is_writable:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
        assert (list(found.refusals), found.election.lease_left_ms) == (["NOT_LEADER"], 0)
        await server.start()
        again = await logs.leader()
        assert (await logs.status(again)).epoch >= epoch


@pytest.fixture
def real(tmp_path: Path) -> KubeApiServer:
    """Kubernetes' own, with a pod of each log, which no kubelet starts."""
    return KubeApiServer(tmp_path / "kubernetes")


@pytest.mark.kubernetes
@pytest.mark.skipif(MISSING, reason=WHY)
@pytest.mark.timeout(1800)
async def test_failovers(tmp_path: Path, real: KubeApiServer) -> None:
    """By kube-apiserver, at default settings, under load: how long it takes is printed; nothing replicated is lost."""
    try:
        await asyncio.to_thread(real.start)
        for name in "abc":
            pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "log", "image": "reput"}]}}
            real.admin("POST", PODS, pod)
        config_file = real.config_file(tmp_path / "account")
        async with lease_trio(tmp_path, config_file, "--role", "sync_master", *DEFAULTS) as logs:
            async with loaded(logs) as load:
                times = [await failover(logs) for _ in range(FAILOVER_COUNT)]
            leader = await logs.leader(in_sync=3)
            load.check(await bodies_of(logs.clients[leader]))
            labels = {item["metadata"]["name"]: item["metadata"]["labels"] for item in real.admin("GET", PODS)["items"]}
            assert [name for name in labels if labels[name] == {LABEL: "leader"}] == [leader]
            await all_the_same(logs, leader)
    finally:
        await asyncio.to_thread(real.kill_all)
    assert compared(tmp_path) > len(load.sent)
    for what, seconds in zip(("accepted", "replicated"), zip(*times, strict=True), strict=True):
        print(
            f"{len(seconds)} failovers, SIGKILL to the first {what} write: {min(seconds):.2f} to {max(seconds):.2f} s, "
            f"median {statistics.median(seconds):.2f} s"
        )
        print("  " + " ".join(f"{second:.2f}" for second in sorted(seconds)))


async def failover(logs: LeaseTrio) -> tuple[float, float]:
    """Kill who leads; how long until a write is accepted, and until one is replicated."""
    dead = await logs.leader(in_sync=3)
    await asyncio.sleep(random.uniform(0, 2))  # somewhere between two renewals
    began_s = time.monotonic()
    await logs.processes[dead].end(signal.SIGKILL)
    others = [name for name in "abc" if name != dead]
    accepted = await first_write(logs, others, append_pb.AppendRequest(durability=DURABILITY_MEMORY))
    replicated = await first_write(logs, others, append_pb.AppendRequest(durability=DURABILITY_REPLICATED))
    await logs.start(dead)
    return accepted - began_s, replicated - began_s


async def first_write(logs: LeaseTrio, names: list[str], request: append_pb.AppendRequest) -> float:
    """Ask again and again, until one of the logs takes it; when that was."""
    request.messages.add(topic=T, body=b"first")
    async with asyncio.timeout(LIMIT_S):
        while True:
            for name in names:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answer = await logs.clients[name].append.Append(request, timeout=5)
                    if answer.result.durability >= request.durability:
                        return time.monotonic()
            await asyncio.sleep(0.005)
