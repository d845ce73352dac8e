# SPDX-License-Identifier: Apache-2.0
"""Each test of this package that has a server runs on both builds of its session."""

import pytest

from libs.runtime.http2.session import build
from tests.support.session_builds import BUILDS, build_of


@pytest.fixture(params=BUILDS)
def each_session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers use a build of the session, and the test runs once for each build."""
    chosen = build_of(request.param)
    monkeypatch.setattr(build, "best", lambda: (chosen, ""))
