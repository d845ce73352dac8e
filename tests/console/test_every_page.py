# SPDX-License-Identifier: Apache-2.0
"""Every page of the console in Chromium (`make test-console`): widths, colour schemes, hostile text, axe-core.

axe-core needs npm.
"""

import pytest
from playwright.sync_api import Browser

from tests.console.browsing import CHROMIUM, faults_in_widths, page_of, serious_faults
from tests.console.filling import KEY, LONG_NAME
from tests.support.console import RunningConsole, in_path

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


@pytest.mark.parametrize("name", PAGES)
def test_each_page_in_each_width(console: RunningConsole, browser: Browser, ids: dict[str, str], name: str) -> None:
    """The page is not wider than the screen, runs no script of the store's text, and keeps the policy for scripts."""
    with page_of(browser) as page:
        assert faults_in_widths(page, console.url + PAGES[name].format(**ids), name) == []


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(
    console: RunningConsole, browser: Browser, ids: dict[str, str], axe: str, name: str
) -> None:
    """axe-core finds no serious and no critical fault of accessibility, nor too little contrast when it is dark."""
    with page_of(browser, color_scheme="light") as page:
        page.goto(console.url + PAGES[name].format(**ids))
        assert serious_faults(page, axe) == []
