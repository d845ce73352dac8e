# SPDX-License-Identifier: Apache-2.0
"""The changes of a console as a browser sends them: previews, confirmations and receipts."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from tests.support.console import Answer, RunningConsole

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class Confirmation:
    """The confirmation on a preview: its form, and the cookie that came with it."""

    path: str
    fields: Mapping[str, str]
    cookie: str

    def given(self, **fields: str) -> "Confirmation":
        """Return the confirmation with other fields; an empty field is left out."""
        kept = {name: value for name, value in {**self.fields, **fields}.items() if value or name not in fields}
        return replace(self, fields=kept)


def preview(console: RunningConsole, path: str, *, cookie: str = "", **arguments: str) -> Confirmation:
    """Open a preview, which must be possible, and return its confirmation. `cookie` is that of a session."""
    shown = console.get(f"{path}?{urlencode(arguments)}", **({"Cookie": cookie} if cookie else {}))
    assert shown.status == 200, shown
    assert 'class="confirm"' in shown.text, shown.text
    form = shown.text.partition('class="confirm"')[2].partition("</form>")[0]
    found = re.findall(r'name="([^"]+)" value="([^"]*)"', form)
    fields = {name: html.unescape(value) for name, value in found}
    cookies = [cookie, shown.headers.get("set-cookie", "").partition(";")[0]]
    return Confirmation(path, fields, "; ".join(filter(None, cookies)))


def confirm(console: RunningConsole, confirmation: Confirmation, headers: Mapping[str, str] | None = None) -> Answer:
    """Send a confirmation as the browser that opened its preview. `headers` replace the browser's."""
    sent = {**FORM, "Origin": console.url, "Cookie": confirmation.cookie, **(headers or {})}
    shown = {name: value for name, value in sent.items() if value}
    return console.ask("POST", confirmation.path, shown, urlencode(confirmation.fields))


def receipt(console: RunningConsole, answer: Answer, cookie: str) -> Any:
    """Follow the answer of a confirmation to its receipt, and return it as JSON."""
    assert answer.status == 303, answer
    place = answer.headers["location"]
    assert place.startswith("/receipt?of=")
    page = console.get(place, Cookie=cookie)
    twin = console.get(place.replace("/receipt?", "/receipt.json?"), Cookie=cookie)
    assert page.status == twin.status
    return twin.json


def outcome(console: RunningConsole, confirmation: Confirmation) -> tuple[str, str]:
    """Confirm, and return the outcome and its text."""
    found = receipt(console, confirm(console, confirmation), confirmation.cookie)
    return found["outcome"], found["text"]
