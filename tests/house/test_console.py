# SPDX-License-Identifier: Apache-2.0
"""The console's own script stays small, and its pages load nothing from elsewhere and run no script of their own."""

import hashlib
import re

from tests.house.sources import ROOT

WEB = ROOT / "services/console/web"
OWN_LINES_MAX = 300
HTMX_SHA256 = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
"""dist/htmx.min.js of the package htmx.org 4.0.1."""


def test_own_script_is_small() -> None:
    """All own JavaScript together has at most 300 lines (decision 0094)."""
    own = [path for path in (WEB / "static").glob("*.js") if path.name != "htmx.min.js"]
    assert sum(len(path.read_text().splitlines()) for path in own) <= OWN_LINES_MAX


def test_htmx_is_unchanged() -> None:
    """The vendored file is that of the package, and its licence lies beside it."""
    assert hashlib.sha256((WEB / "static/htmx.min.js").read_bytes()).hexdigest() == HTMX_SHA256
    assert "Zero-Clause BSD" in (WEB / "static/htmx.LICENSE.txt").read_text()


def test_templates_are_strict() -> None:
    """Templates switch off no escaping, have no scripts and styles of their own, and no address of another host."""
    for path in (WEB / "templates").glob("*.html"):
        text = path.read_text()
        for banned in (
            r"\|\s*safe",
            "autoescape",
            r"<script(?! src=\"/static/)",
            "<style",
            r"\sstyle=",
            r"\son\w+=",
            r"=\"(https?:)?//",
        ):
            assert not re.search(banned, text), f"{path.name} has {banned}"
