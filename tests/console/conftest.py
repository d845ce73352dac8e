# SPDX-License-Identifier: Apache-2.0
"""A browser for the tests of pages."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.console.browsing import CHROMIUM, LIMIT_MS


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        found = context.new_page()
        found.set_default_timeout(LIMIT_MS)
        yield found
