# SPDX-License-Identifier: Apache-2.0
"""How FastStream's test classes get a broker of Reput: over a store of processes, or in TestReputBroker."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
from faststream_reput import ReputBroker, ReputRouter, TestReputBroker
from tests.brokers.base.basic import BaseTestcaseConfig

GROUP = "conformance"
POLL_S = 0.1
"""A stop waits at most so long for a message."""


def broker_of(apply_types: bool = False, **options: Any) -> ReputBroker:
    """Return a broker whose subscribers have a group and stop quickly."""
    return ReputBroker(**{"group": GROUP, "poll_s": POLL_S, "apply_types": apply_types, **options})


class OverStore(BaseTestcaseConfig[ReputBroker]):
    """Brokers over a store of processes."""

    timeout = 10.0

    @pytest.fixture(autouse=True)
    def _store(self, reput_processes: Any) -> None:
        """Let brokers find the store."""

    def get_broker(self, apply_types: bool = False, **options: Any) -> ReputBroker:
        """See FastStream."""
        return broker_of(apply_types, **options)

    def get_router(self, **options: Any) -> ReputRouter:
        """See FastStream."""
        return ReputRouter(**options)

    def patch_broker(self, *brokers: ReputBroker, **options: Any) -> Any:
        """Return the brokers themselves, which stop at the end of the block."""
        if len(brokers) == 1:
            return brokers[0]
        return _entered(brokers)


class InTest(OverStore):
    """Brokers whose handlers are called by `publish` itself. The store is there for tests that ask for a real one."""

    def patch_broker(self, *brokers: ReputBroker, **options: Any) -> Any:
        """See FastStream."""
        return TestReputBroker(*brokers, **options)


@asynccontextmanager
async def _entered(brokers: tuple[ReputBroker, ...]) -> Any:
    for one in brokers:
        await one.__aenter__()
    try:
        yield brokers
    finally:
        for one in brokers:
            await one.__aexit__(None, None, None)
