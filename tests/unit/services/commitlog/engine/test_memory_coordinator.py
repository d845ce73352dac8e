# SPDX-License-Identifier: Apache-2.0
"""The coordinator of the tests keeps the promises of the real coordinators."""

import pytest

from services.commitlog.engine.elect.coordinator import Coordinator
from tests.support.coordinator_contract import CoordinatorContract
from tests.support.memory_coordinator import MemoryCoordinator


class MemoryStage:
    """See `Stage`."""

    def __init__(self) -> None:
        self._coordinator = MemoryCoordinator()
        self.lease_s = self._coordinator.lease_s

    def door(self, identity: str) -> Coordinator:
        return self._coordinator.door(identity)

    async def pass_time(self, seconds: float) -> None:
        self._coordinator.advance(seconds)

    def now_s(self) -> float:
        return self._coordinator.clock.monotonic_s()


class TestMemoryCoordinator(CoordinatorContract):
    """All of it."""

    @pytest.fixture
    def stage(self) -> MemoryStage:
        """A new stage for each test."""
        return MemoryStage()
