# SPDX-License-Identifier: Apache-2.0
"""Each test of a server runs on each front, and with each way of calling a unary method."""

import pytest

from tests.unit.libs.runtime import servers

AT_ONCE = "http2 at once"


@pytest.fixture(params=(*servers.FRONTS, AT_ONCE))
def each_front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`serving` listens with a front, and the test runs once for each front.

    It runs once more on the front in the loop, with unary methods that are called without a task.
    """
    is_at_once = request.param == AT_ONCE
    monkeypatch.setattr(servers, "front", "http2" if is_at_once else request.param)
    monkeypatch.setattr(servers, "is_at_once", is_at_once)
