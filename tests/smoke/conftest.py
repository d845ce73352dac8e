# SPDX-License-Identifier: Apache-2.0
"""A store of real processes for all smoke tests: CommitLog, a follower, Indexer, Janitor, Delivery and gateway."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import reput_client

from tests.support.fixed_service import FixedService
from tests.support.reput_up import Result, run_here

SEGMENT = ("--segment-size-bytes", str(1 << 20))


@dataclass(frozen=True)
class SmokeStore:
    """The processes of a store, which tests may kill: they keep their addresses."""

    log: FixedService
    follower: FixedService
    indexer: FixedService
    janitor: FixedService
    delivery: FixedService
    gateway: FixedService

    @property
    def targets(self) -> dict[str, str]:
        """The addresses as `reput_client.connect` takes them."""
        parts = {"commitlog": self.log, "indexer": self.indexer, "janitor": self.janitor, "delivery": self.delivery}
        return {name: service.target for name, service in parts.items()}

    def run(self, *arguments: str) -> Result:
        """Run a command of `reput` against the store."""
        extra = {f"REPUT_CLIENT_{name.upper()}_TARGET": target for name, target in self.targets.items()}
        return run_here(*arguments, extra=extra)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmokeStore]:
    """Start all services, and stop them in order after the last test."""
    directory: Path = tmp_path_factory.mktemp("smoke")
    with contextlib.ExitStack() as stack:

        def started(name: str, data_dir: str, *flags: str) -> FixedService:
            service = FixedService(name, directory / data_dir, *flags)
            stack.callback(service.stop)
            return service.start()

        log = started("commitlog", "log", *SEGMENT)
        follower = started(
            "commitlog", "copy", *SEGMENT, "--role", "slave", "--replica-id", "copy", "--leader-target", log.target
        )
        indexer = started("indexer", "indexes", "--commitlog-target", log.target)
        peers = ("--commitlog-target", log.target, "--indexer-target", indexer.target)
        janitor = started("janitor", "log", *peers)
        delivery = started("delivery", "delivery", *peers)
        at = ("--commitlog-target", log.target, "--delivery-target", delivery.target)
        gateway = started("gateway", "gateway", *at)
        yield SmokeStore(log, follower, indexer, janitor, delivery, gateway)


@pytest.fixture
def client(store: SmokeStore) -> Iterator[reput_client.Client]:
    """A client of the store."""
    with reput_client.connect(**store.targets) as client:
        yield client
