# SPDX-License-Identifier: Apache-2.0
"""Each test of a server runs on each front."""

import pytest

from tests.unit.libs.runtime import servers


@pytest.fixture(params=servers.FRONTS)
def each_front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`serving` listens with a front, and the test runs once for each front."""
    monkeypatch.setattr(servers, "front", request.param)
