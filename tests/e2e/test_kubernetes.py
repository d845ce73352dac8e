# SPDX-License-Identifier: Apache-2.0
"""KubernetesCoordinator: the contract of coordinators, and what an API server and the network can do."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.commitlog.rpc.coordinate.kubernetes import KubernetesCoordinator
from services.commitlog.rpc.coordinate.settings import KubernetesConfig
from tests.support.coordinator_contract import CoordinatorContract
from tests.support.lease_server import LeaseServer
from tests.support.patience import LIMIT_S

pytestmark = pytest.mark.e2e

NAMES = (f"log-{number}" for number in itertools.count())
PATIENT_MS = int(LIMIT_S * 1000)
"""A time-out of calls that must succeed, on the busiest machine."""


class LeaseStage:
    """A Lease of its own at one API server."""

    lease_s = 2.0

    def __init__(self, config_file: Path) -> None:
        self.config_file = config_file
        self.lease = next(NAMES)
        self._doors: list[KubernetesCoordinator] = []

    def door(self, identity: str, *, timeout_ms: int = PATIENT_MS) -> KubernetesCoordinator:
        """One more process' door."""
        config = KubernetesConfig(lease=self.lease, config_file=self.config_file, timeout_ms=timeout_ms)
        made = KubernetesCoordinator(config, identity=identity, lease_duration_ms=int(self.lease_s * 1000))
        self._doors.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def now_s(self) -> float:
        """As the doors count."""
        return time.monotonic()

    async def close(self) -> None:
        """Close the doors."""
        for door in self._doors:
            await door.close()


@pytest.fixture
async def server() -> AsyncIterator[LeaseServer]:
    """An API server that a test may break."""
    made = LeaseServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def stage(server: LeaseServer, tmp_path: Path) -> AsyncIterator[LeaseStage]:
    """Nothing is there yet."""
    made = LeaseStage(server.config_file(tmp_path))
    yield made
    await made.close()


class TestContract(CoordinatorContract):
    """All that coordinators promise."""
