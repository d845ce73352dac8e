# SPDX-License-Identifier: Apache-2.0
"""Links between pages lead to files and headings that exist."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from tests.house.sources import ROOT, is_ours, relative, text_of

CODE = re.compile(r"```.*?```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
SCHEME = re.compile(r"[a-z]+:")


def pages() -> Iterator[Path]:
    """Yield the pages of the repository."""
    for path in sorted(ROOT.rglob("*.md")):
        if is_ours(path) and not any(part.startswith(".") for part in path.relative_to(ROOT).parts):
            yield path


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them. Equal headings get numbers."""
    found, seen = set(), Counter[str]()
    for heading in HEADING.findall(CODE.sub("", text_of(page))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return frozenset(found)


def is_dead(page: Path, link: str) -> bool:
    """Return whether a link of a page leads nowhere in the repository. Addresses of the web are not looked at."""
    if SCHEME.match(link):
        return False
    path, _, anchor = link.partition("#")
    target = page.parent / unquote(path) if path else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in anchors(target))


def test_links_lead_somewhere() -> None:
    """Each link of a page names a file of the repository, and a heading of it if it has an anchor."""
    assert [
        f"{relative(page)}: {link}"
        for page in pages()
        for link in LINK.findall(CODE.sub("", text_of(page)))
        if is_dead(page, link)
    ] == []


def test_a_dead_link_is_found() -> None:
    """A missing file, a missing heading, and the same heading under another name."""
    page = ROOT / "README.md"
    assert [link for link in ("docs/none.md", "#no-heading", "docs/scale.md#scale") if is_dead(page, link)] == [
        "docs/none.md", "#no-heading", "docs/scale.md#scale",
    ]  # fmt: skip
    assert not is_dead(page, "docs/scale.md#growing")
