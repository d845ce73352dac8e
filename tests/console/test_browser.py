# SPDX-License-Identifier: Apache-2.0
"""The console in Debian's Chromium (`make test-console`): keyboard, narrow screens, times, live tails, outages."""

import os
import signal

import pytest
import reput_client
from playwright.sync_api import Browser, Page, expect

from tests.console.browsing import CHROMIUM, page_of, tab_to
from tests.console.filling import KEY
from tests.support.console import RunningConsole, console_of
from tests.support.reput_up import Store

pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]


def test_keyboard_alone(console: RunningConsole, page: Page) -> None:
    """From any page: the box, a key, the message, its body in another form, and the group behind it."""
    page.goto(f"{console.url}/store")
    page.keyboard.press("/")
    page.keyboard.type("order-3")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("1 message in 1 topic")
    link = page.get_by_role("link", name="Message in queue")
    tab_to(page, link)
    page.keyboard.press("Enter")
    expect(page.locator("pre.body")).to_contain_text('"customer": "c-3"')
    tab_to(page, page.get_by_role("link", name="Hex"))
    page.keyboard.press("Enter")
    expect(page.locator("pre.body")).to_contain_text("00000000  7b 22")
    tab_to(page, page.get_by_role("link", name="billing"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Group billing")


def test_a_slash_is_typed_in_a_box(console: RunningConsole, page: Page) -> None:
    """It leads to the box, whose text the next search replaces; in a box, also in an empty box, it is a character."""
    box = page.locator("input[name=q]")
    for path in ("/", "/?q=order-17", "/groups"):
        page.goto(console.url + path)
        page.locator("h1").first.evaluate("() => document.activeElement.blur()")
        page.keyboard.type("/order")
        expect(box).to_have_value("order")
        box.fill("")
        page.keyboard.type("/a/b")
        expect(box).to_have_value("/a/b")
    page.goto(f"{console.url}/topics/orders")
    for name in ("tags", "where", "at"):
        page.locator(f"input[name={name}]").click()
        page.keyboard.type("/x")
        expect(page.locator(f"input[name={name}]")).to_have_value("/x")


def test_columns_of_a_narrow_screen(console: RunningConsole, page: Page) -> None:
    """At 360 pixels each value of Find and Groups is in view with the name of its column, without scrolling aside."""
    page.set_viewport_size({"width": 360, "height": 740})
    for path, names in (
        (f"/?q={KEY}", ("Stored", "Topic", "Queue", "Offset", "Size")),
        ("/groups", ("Group", "Kind", "Topics", "Lag", "Bytes", "Oldest", "In flight", "Waiting")),
    ):
        page.goto(console.url + path)
        for name in names:
            cell = page.locator(f'tbody td[data-label="{name}"]').first
            place = cell.bounding_box()
            assert place is not None
            assert (place["x"] >= 0, place["x"] + place["width"] <= 360) == (True, True), name
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")


def test_the_box_and_the_menu_of_a_narrow_screen(console: RunningConsole, page: Page) -> None:
    """The field for the topic has room for a name, and each page of the menu is in view."""
    for width in (360, 400, 800):
        page.set_viewport_size({"width": width, "height": 740})
        page.goto(console.url)
        place = page.locator("form.find input[name=topic]").bounding_box()
        assert place is not None
        assert place["width"] >= 150
        in_view = (
            "[...document.querySelectorAll('.bar nav a')].every(e => e.getBoundingClientRect().right <= innerWidth)"
        )
        assert page.evaluate(in_view)


def test_a_filter_of_a_tail_begins_without_old_rows(console: RunningConsole, filled: Store, page: Page) -> None:
    """Rows that were there before the filter are gone when it begins; a tail without a filter keeps them."""
    page.goto(f"{console.url}/topics/orders")
    rows = page.locator("#newest tr")
    count = rows.count()
    assert count > 1
    page.get_by_role("button", name="Follow").click()
    page.get_by_role("button", name="Stop").click()
    assert rows.count() >= count
    page.locator("input[name=tags]").fill("wanted")
    page.get_by_role("button", name="Follow").click()
    expect(rows).to_have_count(0)
    with reput_client.connect(**filled.targets) as client, client.producer() as producer:
        for tag in ("other", "wanted"):
            producer.send("orders", tag.encode(), tag=tag).result()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("wanted")


def test_times_are_in_the_readers_zone(console: RunningConsole, browser: Browser) -> None:
    """A time is shown in the reader's zone, with UTC in its title; the box sends the zone along."""
    with page_of(browser, timezone_id="Australia/Eucla", locale="en-GB") as page:
        page.goto(f"{console.url}/?q=order-3")
        shown, title = page.locator("time").first.inner_text(), page.locator("time").first.get_attribute("title") or ""
        assert int(shown.split(":")[1]) % 60 == (int(title[14:16]) + 45) % 60
        assert page.locator("input[name=zone]").first.input_value() == "Australia/Eucla"


@pytest.mark.parametrize("locale", ["en-US", "fr-CA", "ko-KR", "ar-EG", "el-GR", "zh-TW", "fa-IR", "bn-BD", "fi-FI"])
def test_a_time_of_a_page_is_found_in_each_locale(console: RunningConsole, browser: Browser, locale: str) -> None:
    """A time that is copied from a page into the box finds the minute of the message, in each locale."""
    with page_of(browser, timezone_id="Australia/Eucla", locale=locale) as page:
        page.goto(f"{console.url}/?q=order-3")
        shown = page.locator("td time").first
        copied, moment = shown.inner_text(), shown.get_attribute("datetime") or ""
        page.fill("#q", copied)
        page.press("#q", "Enter")
        expect(page.locator("h2 time")).to_have_attribute("datetime", f"{moment[:19]}.000Z")
        page.goto(f"{console.url}/?q=order-3")
        page.locator('a[href^="/messages/"]').first.click()
        whole = page.locator("time[data-whole]").first
        copied, moment = whole.inner_text(), whole.get_attribute("datetime") or ""
        expect(page.locator(".zone")).to_have_text("Times are in Australia/Eucla.")
        page.goto(console.url)
        page.fill("#q", copied)
        page.press("#q", "Enter")
        expect(page.locator("h2 time")).to_have_attribute("datetime", moment)


def test_live_tail(console: RunningConsole, filled: Store, page: Page) -> None:
    """New messages appear, also with hostile text, and the tail stops."""
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
        expect(page.locator(".card.away")).to_contain_text("Janitor")
    finally:
        os.kill(filled.child("janitor"), signal.SIGCONT)
    expect(page.locator(".card.away")).to_have_count(0)


def test_a_console_that_stops_is_told(filled: Store, page: Page) -> None:
    """The page says that the console does not answer."""
    with console_of(filled.targets) as console:
        page.goto(f"{console.url}/groups")
        expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("#lost")).to_be_visible()
