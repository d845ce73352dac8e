# SPDX-License-Identifier: Apache-2.0
"""Every page of the console in Chromium (`make test-console`): widths, colour schemes, hostile text, axe-core.

axe-core needs npm.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage

from tests.console.browsing import CHROMIUM, page_of
from tests.console.filling import KEY, LONG_NAME
from tests.support.console import RunningConsole, in_path
from tests.support.patience import LIMIT_S

AXE = "axe-core@4.14.1"
SCHEMES = ("light", "dark")
WIDTHS = (320, 360, 800, 1280)
LONG = in_path(LONG_NAME)
PAGES = {
    "find": "/", "found": f"/?q={KEY}", "time": "/?q=-1h", "not-found": "/?q=no-such", "found-long": "/?q=long",
    "message": "/messages/{order-3}", "long-message": "/messages/{long}", "hostile": "/messages/{hostile-key}",
    "binary": "/messages/{binary}",
    "large": "/messages/{large}", "topics": "/topics", "topic": "/topics/orders", "hostile-topic": "/topics/hostile",
    "long-topic": f"/topics/{LONG}", "groups": "/groups", "group": "/groups/billing", "kept-group": "/groups/readers",
    "long-group": f"/groups/{LONG}", "dead-letters": "/dead-letters", "letters": "/dead-letters/billing",
    "long-letters": f"/dead-letters/{LONG}", "no-group": "/groups/a%20b", "no-letters": "/dead-letters/a%20b",
    "no-topic": "/topics/a%20b",
    "store": "/store", "delayed": "/delayed", "transactions": "/transactions", "connections": "/connections",
    "audit": "/audit", "retention": "/retention?hours=0", "retention-of-topic": "/retention?bytes=1&topic=orders",
    "missing": "/topics/nope", "long-missing": f"/topics/{LONG}x", "login": "/login",
    "move": "/groups/billing/reset?topic=orders&to=earliest", "choose-move": "/groups/readers/reset",
    "long-move": f"/groups/{LONG}/reset?topic={LONG}&to=latest",
    "wrong-move": "/groups/readers/reset?topic=orders&to=time&at=soon", "pause": "/groups/billing/pause",
    "replay": "/dead-letters/billing/replay", "cancel": "/delayed/cancel?topic=reminders&id={delayed}",
    "resolve": "/transactions/resolve?id={half}&how=rollback",
}  # fmt: skip
"""The path of each page. Names in braces are ids of the fixture `ids`."""
SHOTS = os.environ.get("SHOTS", "")
"""Directory in which screenshots of all pages are kept."""

pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def ids(console: RunningConsole) -> dict[str, str]:
    """Ids of messages by their key, of a delayed message, and of an open transaction."""
    found = {
        key: console.json(f"/find.json?q={key}")["messages"][0]["id"]
        for key in ("order-3", "hostile-key", "binary", "large", "long")
    }
    delayed = console.json("/delayed.json")["rows"][0]["message_id"]
    half = console.json("/transactions.json")["rows"][0]["id"]
    return {**found, "delayed": delayed, "half": half}


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    directory = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "pack", "--silent", AXE], cwd=directory, check=True, capture_output=True, timeout=LIMIT_S)
    with tarfile.open(next(directory.glob("axe-core-*.tgz"))) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.mark.parametrize("name", PAGES)
def test_each_page_in_each_width(console: RunningConsole, browser: Browser, ids: dict[str, str], name: str) -> None:
    """The page is not wider than the screen, runs no script of the store's text, and keeps the policy for scripts."""
    faults: list[str] = []

    def note(said: ConsoleMessage) -> None:
        if said.type == "error" and "404" not in said.text:
            faults.append(said.text)

    with page_of(browser) as page:
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", note)
        page.goto(console.url + PAGES[name].format(**ids))
        assert "pwned" not in page.title()
        assert "not complete" not in page.inner_text("body")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for scheme in SCHEMES if SHOTS else ():
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.screenshot(path=Path(SHOTS) / f"{name}-{scheme}-{width}.png", full_page=True)
    assert faults == []


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(
    console: RunningConsole, browser: Browser, ids: dict[str, str], axe: str, name: str
) -> None:
    """axe-core finds no serious and no critical fault of accessibility, nor too little contrast when it is dark."""
    with page_of(browser, color_scheme="light") as page:
        page.goto(console.url + PAGES[name].format(**ids))
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
        page.emulate_media(color_scheme="dark")  # changes colours alone
        found += page.evaluate("axe.run({runOnly: ['color-contrast']})")["violations"]
        serious = [
            (violation["id"], [node["html"][:160] for node in violation["nodes"][:3]])
            for violation in found
            if violation["impact"] in ("serious", "critical")
        ]
        assert serious == []
