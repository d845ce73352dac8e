# SPDX-License-Identifier: Apache-2.0
"""The pages of a store with shards in Chromium: widths, axe-core, and the way from a shard to another by keyboard."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browsing import CHROMIUM, faults_in_widths, page_of, serious_faults, tab_to
from tests.support.sharded_console import Shards, sharded_console

PAGES = {
    "shards": "/shards", "shard-topic": "/shards/a/topics/orders", "shard-found": "/shards/b/?q=all",
    "shard-store": "/shards/b/store",
}  # fmt: skip

pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    """Two shards with a topic over both, after the split of a queue."""
    with sharded_console(tmp_path_factory.mktemp("shards") / "store") as found:
        found.commands("split", "orders", "0", "--to", "a", "--to", "b")
        for path in PAGES.values():
            head, mark, query = path.partition("?")
            name = head.rstrip("/") if not mark else f"{head}find"
            found.complete(f"{name}.json{mark}{query}")
        yield found


@pytest.mark.parametrize("name", PAGES)
def test_each_page_in_each_width(shards: Shards, browser: Browser, name: str) -> None:
    """The page is not wider than the screen, and has no error of a script."""
    with page_of(browser) as page:
        assert faults_in_widths(page, shards.console.url + PAGES[name], name) == []


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(shards: Shards, browser: Browser, axe: str, name: str) -> None:
    """axe-core finds no serious and no critical fault of accessibility."""
    with page_of(browser, color_scheme="light") as page:
        page.goto(shards.console.url + PAGES[name])
        assert serious_faults(page, axe) == []


def test_to_another_shard_by_keyboard(shards: Shards, page: Page) -> None:
    """The link of another shard leads to the same page there. The title names that shard."""
    page.goto(f"{shards.console.url}/shards/a/topics/orders")
    tab_to(page, page.get_by_role("link", name="b", exact=True).first)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{shards.console.url}/shards/b/topics/orders")
    assert " · b · " in page.title()
    expect(page.get_by_role("heading", name="Queues of shard b")).to_be_visible()
