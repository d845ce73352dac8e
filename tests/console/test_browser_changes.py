# SPDX-License-Identifier: Apache-2.0
"""The console's login and changes in Debian's Chromium (`make test-console`): by keyboard, twice, stale, foreign."""

import http.server
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client
from playwright.sync_api import Browser, Page, expect
from reput_client import ConsumerOffset

from tests.console.browsing import CHROMIUM, page_of, tab_to
from tests.support.console import RunningConsole, console_of
from tests.support.reput_up import Store

pytestmark = [
    pytest.mark.console,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]

MOVE = "/groups/readers/reset?topic=orders&to=earliest"


@pytest.fixture(scope="module")
def console(filled: Store) -> Iterator[RunningConsole]:
    with console_of(filled.targets, "--store-timeout-ms", "2000", "--allow-actions", "true") as running:
        yield running


@pytest.fixture
def client(filled: Store) -> Iterator[reput_client.Client]:
    with reput_client.connect(**filled.targets) as connected:
        connected.groups.commit("readers", [ConsumerOffset("orders", 0, 20), ConsumerOffset("orders", 1, 10)])
        yield connected


def offsets(client: reput_client.Client) -> list[int]:
    """Return the positions of the group `readers`."""
    return [one.queue_offset for group in client.groups.list() if group.name == "readers" for one in group.offsets]


def press(page: Page, role: str, name: str) -> None:
    """Reach an element by Tab and press Enter."""
    tab_to(page, page.get_by_role(role, name=name))  # type: ignore[arg-type]
    page.keyboard.press("Enter")


def test_a_group_is_moved_by_keyboard(console: RunningConsole, client: reput_client.Client, page: Page) -> None:
    """From the page of the group: the form, a refused time, a preview, the confirmation, the receipt; read again."""
    page.goto(f"{console.url}/groups/readers")
    press(page, "link", "Move…")
    tab_to(page, page.locator("select[name=to]"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    tab_to(page, page.locator("input[name=at]"))
    page.keyboard.type("soon")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("'soon' is no time")
    tab_to(page, page.locator("input[name=at]"))
    page.keyboard.press("Control+A")
    page.keyboard.type("-1d")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("Group readers moves in 2 queues of topic orders")
    expect(page.locator(".warnings")).to_contain_text("30 messages are delivered again")
    assert offsets(client) == [20, 10]
    press(page, "button", "Move the group")
    expect(page.get_by_role("status").filter(has_text="Done.")).to_contain_text("2 queues of topic orders")
    assert offsets(client) == [0, 0]
    client.groups.commit("readers", [ConsumerOffset("orders", 0, 5)])
    page.reload()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
    assert offsets(client) == [5, 0]
    press(page, "link", "The present state")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Group readers")


def test_marked_letters_are_replayed_by_keyboard(
    console: RunningConsole, client: reput_client.Client, page: Page
) -> None:
    """Letters are marked with the space bar, and only these go back."""
    before = [letter.place for letter in client.dead_letters.list("billing")]
    page.goto(f"{console.url}/dead-letters/billing")
    first, second = before[:2]
    for place in sorted((first, second)):
        page.get_by_role("checkbox", name=f"Letter {place[0]}/{place[1]}").focus()
        page.keyboard.press("Space")
    press(page, "button", "Replay the marked letters…")
    expect(page.locator(".verdict")).to_contain_text("2 letters of group billing go back")
    press(page, "button", "Replay the letters")
    expect(page.get_by_role("status").filter(has_text="Done.")).to_contain_text("2 letters went back")
    assert [letter.place for letter in client.dead_letters.list("billing")] == before[2:]


def test_a_button_that_is_pressed_twice(console: RunningConsole, client: reput_client.Client, page: Page) -> None:
    """The second press of a double click does nothing, and the receipt is that of the first."""
    page.goto(console.url + MOVE)
    page.get_by_role("button", name="Move the group").dblclick()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
    assert offsets(client) == [0, 0]


def test_two_windows_with_the_same_preview(console: RunningConsole, client: reput_client.Client, page: Page) -> None:
    """The window that comes second is told that the preview no longer holds, and leads to a new one."""
    other = page.context.new_page()
    for window in (page, other):
        window.goto(console.url + MOVE)
    page.get_by_role("button", name="Move the group").click()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
    other.get_by_role("button", name="Move the group").click()
    expect(other.get_by_role("alert")).to_contain_text("Not done: this confirmation changed nothing.")
    other.get_by_role("link", name="Preview it again").click()
    expect(other.locator(".verdict")).to_contain_text("Group readers moves")
    assert offsets(client) == [0, 0]


def test_a_service_that_is_away_at_the_confirmation(
    console: RunningConsole, filled: Store, client: reput_client.Client, page: Page
) -> None:
    """The reader learns that nothing was done, and the same preview works when the service is back."""
    page.goto(console.url + MOVE)
    os.kill(filled.child("indexer"), signal.SIGSTOP)
    try:
        page.get_by_role("button", name="Move the group").click()
        expect(page.get_by_role("alert")).to_contain_text("Not done")
    finally:
        os.kill(filled.child("indexer"), signal.SIGCONT)
    assert offsets(client) == [20, 10]
    page.get_by_role("link", name="Preview it again").click()
    page.get_by_role("button", name="Move the group").click()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()


def test_a_form_of_another_site(
    console: RunningConsole, client: reput_client.Client, browser: Browser, tmp_path: Path
) -> None:
    """A form of another site, and of another port of this machine, does nothing, though it knows all fields."""
    with page_of(browser) as page:
        page.goto(console.url + MOVE)
        fields = page.eval_on_selector_all(
            ".confirm input", "all => all.map(one => `<input name='${one.name}' value='${one.value}'>`).join('')"
        )
        form = f"<form method=post action='{console.url}/groups/readers/reset'>{fields}<button>Go</button></form>"
        (tmp_path / "index.html").write_text(form)
        with elsewhere(tmp_path) as port:
            for host in ("127.0.0.1", "localhost"):
                page.goto(f"http://{host}:{port}/index.html")
                with page.expect_response(lambda answer: answer.request.method == "POST") as answer:
                    page.get_by_role("button", name="Go").click()
                assert answer.value.status == 403
                expect(page.get_by_role("heading", level=1)).to_contain_text("Forbidden")
    assert offsets(client) == [20, 10]


def test_login_by_keyboard(filled: Store, page: Page, tmp_path: Path) -> None:
    """A wrong token is told, a right token leads to the page that was wanted, and a change belongs to the session."""
    tokens = tmp_path / "tokens"
    tokens.write_text("right-token\n")
    tokens.chmod(0o600)
    with console_of(filled.targets, "--login-token-file", str(tokens), "--allow-actions", "true") as console:
        page.goto(f"{console.url}/groups/paused")
        page.keyboard.type("wrong-token")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("does not open the console")
        page.keyboard.type("right-token")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("Group paused")
        press(page, "link", "Resume…")
        press(page, "button", "Resume the group")
        expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()


class elsewhere:  # noqa: N801 - a context manager
    """A site of its own with the files of a directory."""

    def __init__(self, directory: Path) -> None:
        def handler(*arguments: object) -> http.server.SimpleHTTPRequestHandler:
            return http.server.SimpleHTTPRequestHandler(*arguments, directory=str(directory))  # type: ignore[arg-type]

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> int:
        self._thread.start()
        return int(self._server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
