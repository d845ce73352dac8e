# SPDX-License-Identifier: Apache-2.0
"""The builds of the HTTP/2 session, for tests that run on both."""

import os

import pytest

from libs.runtime.http2.session import build
from libs.runtime.http2.session.build import Build, compiled
from libs.runtime.http2.session.plain import PlainSession

BUILDS = ("compiled", "plain")


def build_of(name: str) -> Build:
    """Return a build. Skips the test if it is not built, unless extensions are required."""
    if name == "plain":
        return PlainSession
    try:
        return compiled()
    except ImportError:
        if os.environ.get("REPUT_REQUIRE_EXTENSIONS") == "1":
            raise
        pytest.skip("the compiled session is not built")


@pytest.fixture(params=BUILDS)
def each_session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers use a build of the session, and the test runs once for each build."""
    chosen = build_of(request.param)
    monkeypatch.setattr(build, "best", lambda: (chosen, ""))
