# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium for tests of pages, and its keyboard."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page

from tests.support.patience import LIMIT_S

CHROMIUM = shutil.which("chromium")
LIMIT_MS = LIMIT_S * 1000


@contextmanager
def page_of(browser: Browser, **options: Any) -> Iterator[Page]:
    """Yield a page of a context with these options. Its time limits are longer than those of Playwright."""
    with browser.new_context(**options) as context:
        context.set_default_timeout(LIMIT_MS)
        yield context.new_page()


def tab_to(page: Page, element: Locator) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if element.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError("the element can't be reached by Tab")
