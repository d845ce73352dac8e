# SPDX-License-Identifier: Apache-2.0
"""Figures of speed in the pages come from committed tables."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("clients/**/*.md")]
)
LINK = re.compile(r"\(((?:\.\./)*bench/results/[^)]+)\)")
FIGURE = re.compile(r"\d{1,3}(?:,\d{3})+|\d+\.\d+ million|\d+\.\d+")


def blocks(text: str) -> Iterator[str]:
    """Yield the blocks of a page: paragraphs, and a table together with the paragraph before it."""
    parts = re.split(r"\n\s*\n", text.strip())
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        *before, last = part.splitlines()
        yield from before
        yield f"{last}\n{following}" if following.startswith("|") else last


def table(path: Path) -> str:
    """Return the text of results. Figures of JSON have two digits behind the point, as pages round them."""
    text = path.read_text()
    return re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text) if path.suffix == ".json" else text


def spellings(figure: str) -> set[str]:
    """Return how a table may write a figure: 469,000 as 469 k, and 1.25 million as 1.25 M."""
    if figure.endswith(" million"):
        return {figure.replace(" million", " M")}
    return {figure, figure.removesuffix(",000") + " k"} if figure.endswith(",000") else {figure}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_are_in_the_table_that_their_sentence_links_to(page: Path) -> None:
    """A sentence or table that links to a measurement has figures of that measurement alone."""
    missing = []
    for block in blocks(page.read_text()):
        links = LINK.findall(block)
        tables = "".join(table(page.parent / link) for link in links)
        if links:
            figures = FIGURE.findall(LINK.sub("", block))
            missing += [figure for figure in figures if not any(spelt in tables for spelt in spellings(figure))]
    assert not missing, f"{page.relative_to(ROOT)}: no linked table has {', '.join(missing)}"
