# SPDX-License-Identifier: Apache-2.0
"""Three logs that elect a leader by a Lease of Kubernetes.

The API server is a LeaseServer. test_failovers.py uses kube-apiserver itself.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.e2e.test_elections import Load, Trio, all_the_same, loaded
from tests.e2e.test_replication import compared
from tests.e2e.test_roles_at_run_time import bodies_of
from tests.support.lease_server import LeaseServer
from tests.support.patience import LIMIT_S, eventually

pytestmark = pytest.mark.e2e

LABEL = "reput.dev/role"


class LeaseTrio(Trio):
    """Logs a, b and c, each in a pod of its name, or a pod object at the API server."""

    def __init__(self, directory: Path, stack: contextlib.AsyncExitStack, config_file: Path, *flags: str) -> None:
        super().__init__(directory, stack, *flags)
        self._config_file = config_file

    def coordinator(self, name: str) -> tuple[str, ...]:
        """Return the flags by which a log finds the coordinator."""
        where = ("--kubernetes-config-file", str(self._config_file), "--kubernetes-pod", name)
        return ("--coordinator", "kubernetes", *where)


@contextlib.asynccontextmanager
async def lease_trio(directory: Path, config_file: Path, *flags: str) -> AsyncIterator[LeaseTrio]:
    """Three logs, all in sync."""
    async with contextlib.AsyncExitStack() as stack:
        logs = LeaseTrio(directory, stack, config_file, *flags)
        for name in "abc":
            await logs.start(name)
        await logs.leader(in_sync=3)
        yield logs


@pytest.fixture
async def server() -> AsyncIterator[LeaseServer]:
    """The API server with the Lease and the pods."""
    made = LeaseServer()
    made.pods = {name: {} for name in "abc"}
    await made.start()
    yield made
    await made.stop()


async def check_leaders_die(logs: LeaseTrio, load: Load, roles: Callable[[], dict[str, str]], count: int) -> None:
    """Each time another log leads by itself, and its pod's label says so. No replicated message is lost."""
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
    """Another log leads by itself, the dead log comes back as a follower, and all logs are the same in the end."""

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
    """An orderly stop hands over before the lease expires, and the pod's label follows."""
    async with lease_trio(tmp_path, server.config_file(tmp_path), "--lease-duration-ms", "60000") as logs:
        leader = await logs.leader(in_sync=3)
        began_s = time.monotonic()
        await logs.processes[leader].end(signal.SIGTERM)
        await logs.leader(but=leader)
        assert time.monotonic() - began_s < 48  # the lease's own end
        assert server.pods[leader]["labels"] == {LABEL: "follower"}


async def test_without_api_server(tmp_path: Path, server: LeaseServer) -> None:
    """Without the API server the leader continues while all others promise not to stand, and no longer.

    A log leads again when the server is back.
    """
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
