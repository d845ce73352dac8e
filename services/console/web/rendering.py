# SPDX-License-Identifier: Apache-2.0
"""Rendering: pages to HTML. Everything from the store is escaped; invisible characters become escapes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from libs.figures import counted, duration_text, many, rate_text, size_text
from libs.moments import time_text
from libs.runtime.version import VERSION
from services.console.pages.chart import HEIGHT, WIDTH
from services.console.pages.page import Page
from services.console.web.shards import ShardLink, prefix_of

TEMPLATES = Path(__file__).parent / "templates"
LAYOUT_CHARACTERS = "\n\t"
_LAST_MS = 253_402_300_799_999


class Renderer:
    """Makes HTML. `urls` are functions that templates call. Callers: a single thread."""

    def __init__(self) -> None:
        self._shard = ""
        """The shard of the page that is being made."""
        self._templates = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(
            version=VERSION, chart_width=WIDTH, chart_height=HEIGHT, many=many, counted=counted, at=self._at,
            topic_url=self._at_shard(topic_url), group_url=self._at_shard(group_url),
            letters_url=self._at_shard(letters_url), message_url=self._at_shard(message_url),
            offset_url=self._at_shard(offset_url),
        )  # fmt: skip

    def page(
        self, page: Page, *, path: str, twin: str, can_log_out: bool, has_changes: bool = False, form_token: str = "",
        shards: Sequence[ShardLink] = (),
    ) -> str:  # fmt: skip
        """Return a page of the store as HTML.

        `path` is below the shard, `twin` is the whole address of the same as JSON. With `has_changes` pages lead to
        changes, whose confirmations have the `form_token`.
        """
        return self.html(
            page.template, page.shard, page=page, path=path, twin=twin, can_log_out=can_log_out,
            has_changes=has_changes, form_token=form_token, shards=shards,
        )  # fmt: skip

    def html(self, template: str, shard: str = "", **values: object) -> str:
        """Return a template with values as HTML, whose links stay at a shard."""
        self._shard = shard
        return self._templates.get_template(template).render(values)

    def _at(self, shard: str = "") -> str:
        """Return the begin of addresses of a shard, by default that of the page."""
        return prefix_of(shard or self._shard)

    def _at_shard(self, url: Callable[..., str]) -> Callable[..., str]:
        """Return a function of addresses whose addresses are at the shard of the page, or at a given shard."""
        return lambda *parts, shard="": self._at(shard) + url(*parts)


def visible(text: str) -> str:
    """Return a text whose control characters and directions of writing are shown as escapes, but for line ends."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in LAYOUT_CHARACTERS else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text
    )


def one_line(text: str) -> str:
    """Return a text on a single line, with all that is not printable as escapes."""
    return text if text.isprintable() else visible(text).replace("\n", "\\n").replace("\t", "\\t")


def content(text: str) -> Markup:
    """Return a text on a single line for the content of an element, where the quotes of JSON need no escape."""
    return Markup(str(escape(one_line(text))).replace("&#34;", '"').replace("&#39;", "'"))  # noqa: S704 - escaped


def time_element(time_ms: int | None) -> Markup:
    """Return a moment as an element, which the browser shows in the reader's zone."""
    if time_ms is None:
        return Markup("–")
    text = time_text(min(max(time_ms, 0), _LAST_MS))
    return Markup('<time datetime="{0}">{1}</time>').format(text, f"{text[:10]} {text[11:19]} UTC")


def moment_element(time_ms: int | None) -> Markup:
    """Return a time with its date, milliseconds and zone, for texts that are passed on."""
    if time_ms is None:
        return time_element(None)
    text = time_text(min(max(time_ms, 0), _LAST_MS))
    return Markup('<time datetime="{0}" data-whole>{1}</time>').format(text, f"{text[:10]} {text[11:23]} UTC")


def number(value: int | None) -> str:
    """Return a number with commas, a dash for an unknown number."""
    return "–" if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Return a size, a dash for an unknown size."""
    return "–" if value is None else size_text(value)


def duration(value: float | None) -> str:
    """Return a duration, a dash for an unknown duration."""
    return "–" if value is None else duration_text(value)


def rough(value: float | None) -> str:
    """Return a number of a chart, a dash for an unknown number."""
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a rate of messages, a dash for an unknown rate."""
    return "–" if value is None else rate_text(value, "messages")


def per_second(value: float | None) -> str:
    """Return a number a second in a table, a dash for an unknown number."""
    return "–" if value is None else f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def name_in_url(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")


def topic_url(name: str) -> str:
    """Return the address of the page of a topic."""
    return f"/topics/{name_in_url(name)}"


def offset_url(topic: str, queue_id: int, queue_offset: int) -> str:
    """Return the address of a look at an offset of a queue."""
    return f"{topic_url(topic)}?queue={queue_id}&offset={queue_offset}#look"


def group_url(name: str) -> str:
    """Return the address of the page of a group."""
    return f"/groups/{name_in_url(name)}"


def letters_url(name: str) -> str:
    """Return the address of the page of a group's dead letters."""
    return f"/dead-letters/{name_in_url(name)}"


def message_url(message_id: str) -> str:
    """Return the address of the page of a message."""
    return f"/messages/{name_in_url(message_id)}"


def wrappable(text: str) -> Markup:
    """Return a name on a single line that may be broken behind its separators."""
    parts = escape(one_line(text))
    for separator in ("_", "-", "%", "|"):
        parts = Markup(str(parts).replace(separator, f"{separator}<wbr>"))  # noqa: S704 - escaped above
    return parts


FILTERS: Mapping[str, Callable[..., Any]] = {
    "content": content,
    "visible": visible,
    "one_line": one_line,
    "time": time_element,
    "moment": moment_element,
    "number": number,
    "size": size,
    "duration": duration,
    "rough": rough,
    "rate": rate,
    "per_second": per_second,
    "url": name_in_url,
    "name": wrappable,
}
