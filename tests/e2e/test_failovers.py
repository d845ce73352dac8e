# SPDX-License-Identifier: Apache-2.0
"""The time without a log that accepts appends: after the leader's death, and during a handover.

Settings are the defaults, and there is load. `make failovers` prints histograms, with etcd; `make test-kubernetes`
with kube-apiserver itself.
"""

import asyncio
import contextlib
import math
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1.message_pb2 import DURABILITY_MEMORY, DURABILITY_REPLICATED

from tests.e2e.test_elections import Trio, all_the_same, loaded, trio
from tests.e2e.test_kubernetes_elections import LABEL, lease_trio
from tests.e2e.test_replication import T, compared
from tests.e2e.test_roles_at_run_time import bodies_of, reput, target
from tests.support.etcd_server import ETCD, NO_ETCD
from tests.support.kube_api_server import MISSING, WHY, KubeApiServer
from tests.support.lease_server import NAMESPACE
from tests.support.patience import LIMIT_S, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

FAILOVER_COUNT = int(os.environ.get("REPUT_FAILOVERS", "20"))
LEASE = ("--lease-duration-ms", "5000", "--lease-renew-ms", "1500")
SETTINGS = ("--role", "sync_master", *LEASE, "--replica-lag-ms-max", "10000", "--reconnect-ms-max", "2000")
"""The defaults. Other tests use shorter times."""
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BUCKET_COUNT = 10

Elected = Callable[[], AbstractAsyncContextManager[Trio]]


@contextlib.asynccontextmanager
async def by_etcd(directory: Path) -> AsyncIterator[Trio]:
    """Three logs with an etcd of their own."""
    async with trio(directory, *SETTINGS) as logs:
        yield logs


@contextlib.asynccontextmanager
async def by_kubernetes(directory: Path) -> AsyncIterator[Trio]:
    """Three logs with Kubernetes' own API server, and a pod object for each, which no kubelet starts.

    A label names the leader.
    """
    server = KubeApiServer(directory / "kubernetes")
    try:
        await asyncio.to_thread(server.start)
        for name in "abc":
            pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "log", "image": "reput"}]}}
            server.admin("POST", PODS, pod)
        async with lease_trio(directory, server.config_file(directory / "account"), *SETTINGS) as logs:
            leader = await logs.leader(in_sync=3)
            await eventually(lambda: labelled(server) == [leader])
            yield logs
    finally:
        await asyncio.to_thread(server.kill_all)


def labelled(server: KubeApiServer) -> list[str]:
    """The pods whose label says that they lead."""
    pods = [item["metadata"] for item in server.admin("GET", PODS)["items"]]
    return [pod["name"] for pod in pods if pod.get("labels", {}).get(LABEL) == "leader"]


@pytest.fixture(
    params=[
        pytest.param(by_etcd, id="etcd", marks=[pytest.mark.long, pytest.mark.skipif(ETCD is None, reason=NO_ETCD)]),
        pytest.param(
            by_kubernetes, id="kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.skipif(MISSING, reason=WHY)]
        ),
    ]
)
def elected(request: pytest.FixtureRequest, tmp_path: Path) -> Elected:
    """Return a function that starts three logs that elect a leader."""
    return lambda: request.param(tmp_path)


async def test_failovers(tmp_path: Path, elected: Elected) -> None:
    """Failovers lose no replicated message, and their times are printed."""
    await measured(
        tmp_path, elected, failover, ("SIGKILL to the first accepted write", "SIGKILL to the first replicated one")
    )


async def test_handovers(tmp_path: Path, elected: Elected) -> None:
    """Handovers lose no replicated message, and their times are printed."""
    told = "nobody accepts a write", "`reput handover` to the first accepted write of the new leader"
    await measured(tmp_path, elected, handover, told)


async def measured(
    directory: Path, elected: Elected, change: Callable[[Trio], Awaitable[tuple[float, ...]]], told: tuple[str, ...]
) -> None:
    """Let the leader change again and again under load, and print the times."""
    async with elected() as logs:
        async with loaded(logs) as load:
            times = [await change(logs) for _ in range(FAILOVER_COUNT)]
        leader = await logs.leader(in_sync=3)
        load.check(await bodies_of(logs.clients[leader]))
        await all_the_same(logs, leader)
    assert compared(directory) > len(load.sent)
    for what, seconds in zip(told, zip(*times, strict=True), strict=True):
        print(histogram(what, seconds))


async def failover(logs: Trio) -> tuple[float, float]:
    """Kill the leader. Return the times until a write is accepted, and until a write is replicated."""
    dead = await logs.leader(in_sync=3)
    await asyncio.sleep(random.uniform(0, 2))  # somewhere between two renewals
    began_s = time.monotonic()
    await logs.processes[dead].end(signal.SIGKILL)
    others = [name for name in "abc" if name != dead]
    accepted = await first_write(logs, others, append_pb.AppendRequest(durability=DURABILITY_MEMORY))
    replicated = await first_write(logs, others, append_pb.AppendRequest(durability=DURABILITY_REPLICATED))
    await logs.start(dead)
    return accepted - began_s, replicated - began_s


async def handover(logs: Trio) -> tuple[float, float]:
    """Let the leader hand over.

    Return the time without a log that accepts writes, and the time with the command's start.
    """
    leader = await logs.leader(in_sync=3)
    await asyncio.sleep(random.uniform(0, 2))
    other = random.choice([name for name in "abc" if name != leader])
    began_s = time.monotonic()
    handing = asyncio.create_task(reput(logs.processes[leader], "handover", target(logs.processes[other])))
    request = append_pb.AppendRequest(durability=DURABILITY_MEMORY)
    last_s, writing = began_s, asyncio.create_task(first_write(logs, [other], request))
    while not writing.done():
        if await is_accepted(logs, leader, request):
            last_s = time.monotonic()
        await asyncio.sleep(0.005)
    await handing
    return writing.result() - last_s, writing.result() - began_s


async def first_write(logs: Trio, names: Sequence[str], request: append_pb.AppendRequest) -> float:
    """Try again and again, until a log accepts the request. Return the time of its answer."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            for name in names:
                if await is_accepted(logs, name, request):
                    return time.monotonic()
            await asyncio.sleep(0.005)


async def is_accepted(logs: Trio, name: str, request: append_pb.AppendRequest) -> bool:
    """Whether a log accepts a write with the requested durability."""
    if not request.messages:
        request.messages.add(topic=T, body=b"first")
    with contextlib.suppress(grpc.aio.AioRpcError):
        answer = await logs.clients[name].append.Append(request, timeout=5)
        return bool(answer.result.durability >= request.durability)
    return False


def histogram(what: str, seconds: Sequence[float]) -> str:
    """Return lines of text: least, median, most, and bars of times."""
    least, most = min(seconds), max(seconds)
    width_s = max((most - least) / BUCKET_COUNT, 0.001)
    counts = Counter(min(math.floor((second - least) / width_s), BUCKET_COUNT - 1) for second in seconds)
    bars = [f"  {least + index * width_s:7.3f} s  {'#' * counts[index]}" for index in range(BUCKET_COUNT)]
    head = f"{what}, {len(seconds)} times: {least:.3f} to {most:.3f} s, median {statistics.median(seconds):.3f} s"
    return "\n".join([head, *bars])
