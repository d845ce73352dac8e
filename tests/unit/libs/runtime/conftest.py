# SPDX-License-Identifier: Apache-2.0
"""What is asked of a server is asked of it on each front."""

import pytest

from tests.unit.libs.runtime import servers


@pytest.fixture(params=servers.FRONTS)
def each_front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`serving` listens with one of the fronts, and the test runs once for each."""
    monkeypatch.setattr(servers, "front", request.param)
