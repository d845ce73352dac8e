# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium for tests of pages, and its keyboard."""

import shutil

from playwright.sync_api import Locator, Page

from tests.support.patience import LIMIT_S

CHROMIUM = shutil.which("chromium")
LIMIT_MS = LIMIT_S * 1000


def tab_to(page: Page, element: Locator) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if element.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError("the element can't be reached by Tab")
