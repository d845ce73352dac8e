# SPDX-License-Identifier: Apache-2.0
"""The console in Debian's Chromium (`make test-console`): keyboard, colour schemes, widths, hostile text, outages.

It needs `chromium` and, for axe-core, npm.
"""

import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.console.filling import KEY, LONG_NAME, fill
from tests.support.console import RunningConsole, console_of, in_path
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

CHROMIUM = shutil.which("chromium")
AXE = "axe-core@4.14.1"
WIDTHS = (360, 800, 1280)
LIMIT_MS = LIMIT_S * 1000
SHOTS = os.environ.get("SHOTS", "")
"""Directory in which screenshots of all pages are kept."""

pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("console"), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client)
        yield running


@pytest.fixture(scope="module")
def console(filled: Store) -> Iterator[RunningConsole]:
    with console_of(filled.targets, "--store-timeout-ms", "2000") as running:
        yield running


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def pages(console: RunningConsole) -> dict[str, str]:
    """The pages by name."""

    def of(key: str) -> str:
        return f"/messages/{console.json(f'/find.json?q={key}')['messages'][0]['id']}"

    return {
        "find": "/", "found": f"/?q={KEY}", "time": "/?q=-1h", "not-found": "/?q=no-such", "message": of("order-3"),
        "hostile": of("hostile-key"), "binary": of("binary"), "large": of("large"), "topics": "/topics",
        "topic": "/topics/orders", "hostile-topic": "/topics/hostile", "long-name": f"/topics/{in_path(LONG_NAME)}",
        "groups": "/groups", "group": "/groups/billing", "kept-group": "/groups/readers",
        "dead-letters": "/dead-letters", "letters": "/dead-letters/billing", "store": "/store",
        "missing": "/topics/nope",
        "login": "/login",
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_in_each_width(
    console: RunningConsole, browser: Browser, pages: dict[str, str], scheme: str, subtests: pytest.Subtests
) -> None:
    """No page is wider than the screen, runs a script of the store's text, or breaks the policy for scripts."""
    for width in WIDTHS:
        with browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}) as context:  # type: ignore[arg-type]
            page = context.new_page()
            faults: list[str] = []
            page.on("pageerror", lambda error, faults=faults: faults.append(str(error)))
            page.on("console", lambda said, faults=faults: faults.append(said.text) if said.type == "error" else None)
            for name, path in pages.items():
                with subtests.test(f"{name} {width}"):
                    page.goto(console.url + path)
                    assert "pwned" not in page.title()
                    assert page.evaluate("document.documentElement.scrollWidth") <= width
                    if SHOTS:
                        page.screenshot(path=Path(SHOTS) / f"{name}-{scheme}-{width}.png", full_page=True)
            assert [fault for fault in faults if "404" not in fault] == []


def test_keyboard_alone(console: RunningConsole, page: Page) -> None:
    """From any page: the box, a key, the message, its body in another form, and the group behind it."""
    page.goto(f"{console.url}/store")
    page.keyboard.press("/")
    page.keyboard.type("order-3")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("1 message in 1 topic")
    link = page.get_by_role("link", name="Message in queue")
    _tab_to(page, link)
    page.keyboard.press("Enter")
    expect(page.locator("pre.body")).to_contain_text('"customer": "c-3"')
    _tab_to(page, page.get_by_role("link", name="Hex"))
    page.keyboard.press("Enter")
    expect(page.locator("pre.body")).to_contain_text("00000000  7b 22")
    _tab_to(page, page.get_by_role("link", name="billing"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Group billing")


def _tab_to(page: Page, link: object) -> None:
    """Press Tab until the link has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if link.evaluate("element => element === document.activeElement"):  # type: ignore[attr-defined]
            return
    raise AssertionError("the link can't be reached by Tab")


def test_times_are_in_the_readers_zone(console: RunningConsole, browser: Browser) -> None:
    """A time is shown in the reader's zone, with UTC in its title; the box sends the zone along."""
    with browser.new_context(timezone_id="Australia/Eucla", locale="en-GB") as context:
        page = context.new_page()
        page.goto(f"{console.url}/?q=order-3")
        shown, title = page.locator("time").first.inner_text(), page.locator("time").first.get_attribute("title") or ""
        assert int(shown.split(":")[1]) % 60 == (int(title[14:16]) + 45) % 60
        assert page.locator("input[name=zone]").first.input_value() == "Australia/Eucla"


def test_live_tail(console: RunningConsole, filled: Store, page: Page) -> None:
    """New messages appear, hostile ones too, and the tail stops."""
    page.goto(f"{console.url}/topics/payments")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator("[data-tail-state]")).to_contain_text("Following")
    with reput_client.connect(**filled.targets) as client, client.producer() as producer:
        producer.send("payments", b"<img src=x onerror=\"document.title='pwned'\">fresh", keys="fresh").result()
    expect(page.locator("#newest tr").first).to_contain_text("fresh")
    assert "pwned" not in page.title()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-tail-state]")).to_contain_text("Stopped after")


def test_an_outage_is_told_on_an_open_page(console: RunningConsole, filled: Store, page: Page) -> None:
    """A service that stops answering while the page is open is told, and the page recovers by itself."""
    page.goto(f"{console.url}/store")
    expect(page.locator(".card.away")).to_have_count(0)
    os.kill(filled.child("janitor"), signal.SIGSTOP)
    try:
        expect(page.locator(".card.away")).to_contain_text("Janitor", timeout=LIMIT_MS)
    finally:
        os.kill(filled.child("janitor"), signal.SIGCONT)
    expect(page.locator(".card.away")).to_have_count(0, timeout=LIMIT_MS)


def test_a_console_that_stops_is_told(filled: Store, page: Page) -> None:
    """The page says that the console does not answer."""
    with console_of(filled.targets) as console:
        page.goto(f"{console.url}/groups")
        expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("#lost")).to_be_visible(timeout=LIMIT_MS)


def test_axe_finds_nothing_serious(
    console: RunningConsole, page: Page, pages: dict[str, str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """axe-core finds no serious and no critical fault of accessibility on any page."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    subprocess.run(["npm", "pack", "--silent", AXE], cwd=tmp_path, check=True, capture_output=True, timeout=LIMIT_S)
    with tarfile.open(next(tmp_path.glob("axe-core-*.tgz"))) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        axe = script.read().decode()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for name, path in pages.items():
            with subtests.test(f"{name} {scheme}"):
                page.goto(console.url + path)
                page.evaluate(axe)
                found = page.evaluate("axe.run()")["violations"]
                serious = [
                    (one["id"], [node["html"][:160] for node in one["nodes"][:3]])
                    for one in found
                    if one["impact"] in ("serious", "critical")
                ]
                assert serious == []
