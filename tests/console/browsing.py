# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium for tests of pages, and its keyboard."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

from tests.support.patience import LIMIT_S

CHROMIUM = shutil.which("chromium")
LIMIT_MS = LIMIT_S * 1000
SCHEMES = ("light", "dark")
WIDTHS = (320, 360, 800, 1280)
SHOTS = os.environ.get("SHOTS", "")
"""Directory in which screenshots of all pages are kept."""


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


def faults_in_widths(page: Page, url: str, name: str) -> list[str]:
    """Return errors of scripts and of the policy for scripts on a page, and the widths at which it is too wide.

    With SHOTS, screenshots of it are kept under this name.
    """
    faults: list[str] = []

    def note(said: ConsoleMessage) -> None:
        if said.type == "error" and "404" not in said.text:
            faults.append(said.text)

    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", note)
    page.goto(url)
    if "pwned" in page.title():
        faults.append("a script of the store's text ran")
    if "not complete" in page.inner_text("body"):
        faults.append("the page is not complete")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        if (found := page.evaluate("document.documentElement.scrollWidth")) > width:
            faults.append(f"{found} pixels wide on a screen of {width}")
        for scheme in SCHEMES if SHOTS else ():
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.screenshot(path=Path(SHOTS) / f"{name}-{scheme}-{width}.png", full_page=True)
    return faults


def serious_faults(page: Page, axe: str) -> list[tuple[str, list[str]]]:
    """Return the serious and critical faults that axe-core finds on a light page, and its contrast when it is dark."""
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    page.emulate_media(color_scheme="dark")  # changes colours alone
    found += page.evaluate("axe.run({runOnly: ['color-contrast']})")["violations"]
    return [
        (violation["id"], [node["html"][:160] for node in violation["nodes"][:3]])
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]
