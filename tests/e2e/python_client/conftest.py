# SPDX-License-Identifier: Apache-2.0
"""The Python client against a store of real processes: a store for each module, and a client of it."""

from collections.abc import Iterator

import pytest
import reput_client

from tests.support.reput_up import Store, store


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store for all tests of a module, with the flags of its STORE_FLAGS. Each test uses topics of its own."""
    flags: tuple[str, ...] = getattr(request.module, "STORE_FLAGS", ())
    with store(tmp_path_factory.mktemp("store"), *flags) as running:
        yield running


@pytest.fixture
def client(running: Store) -> Iterator[reput_client.Client]:
    """A synchronous client of the store."""
    with reput_client.connect(**running.targets) as client:
        yield client
