# SPDX-License-Identifier: Apache-2.0
"""The console in Chromium behind nginx: a login by its form, and live tails with and without held back events."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client
from playwright.sync_api import Browser, Page, expect

from tests.console.browsing import CHROMIUM, page_of
from tests.support.console import console_of
from tests.support.nginx import BUFFERED, NGINX, nginx
from tests.support.reput_up import store

pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
    pytest.mark.skipif(NGINX is None, reason="there is no nginx: apt-get install nginx"),
]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with page_of(browser, ignore_https_errors=True) as found:
        yield found


@pytest.mark.parametrize("more", ["", BUFFERED], ids=["passed on", "held back"])
def test_a_reader_behind_nginx(page: Page, tmp_path: Path, more: str) -> None:
    """A reader logs in through the proxy and follows a topic: by events, or by polling where events do not arrive."""
    tokens = tmp_path / "tokens"
    tokens.write_text("right-token\n")
    tokens.chmod(0o600)
    flags = ("--login-token-file", str(tokens), "--trusted-proxies", "127.0.0.1")
    with (
        store(tmp_path / "data") as running,
        reput_client.connect(**running.targets) as client,
        console_of(running.targets, *flags) as console,
        nginx(tmp_path, console.port, more=more) as port,
        client.producer() as producer,
    ):
        producer.send("orders", b"first").result()
        page.goto(f"https://127.0.0.1:{port}/topics/orders")
        page.locator("input[name=token]").fill("right-token")
        page.locator("input[name=token]").press("Enter")
        expect(page).to_have_url(f"https://127.0.0.1:{port}/topics/orders")
        page.get_by_role("button", name="Follow").click()
        producer.send("orders", b"through nginx").result()
        expect(page.locator("[data-tail]")).to_contain_text("through nginx")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("[data-tail-state]")).to_contain_text("Stopped after 1 message")
