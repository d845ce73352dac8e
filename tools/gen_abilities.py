# SPDX-License-Identifier: Apache-2.0
"""Writes the table ability by language in clients/README.md, and its short form in README.md, from the clients' cases.

Run it as `python -m tools.gen_abilities`; with `--check` it writes nothing and fails when a page is out of date.
"""

import re
import sys
from pathlib import Path

from tests.clients.cases import LANGUAGES, Case, load
from tools.written import write_or_check

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- abilities: made by tools/gen_abilities.py -->", "<!-- end of abilities -->"
PART = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
NAMES = {"python": "Python", "go": "Go", "java": "Java", "node": "Node"}


def with_abilities(page: Path, content: str) -> str:
    """Return the text of a page with this content in its part for abilities."""
    text, count = PART.subn(lambda _: f"{BEGIN}\n{content}\n{END}", page.read_text(encoding="utf-8"))
    assert count == 1, f"{page} has no part for abilities"
    return text


def table_of(cases: list[Case]) -> str:
    """Return the Markdown table: a language has an ability if it runs all cases of the ability."""
    lines = [
        f"| ability | {' | '.join(NAMES[language] for language in LANGUAGES)} |",
        f"|---|{'---|' * len(LANGUAGES)}",
    ]
    for ability, languages in languages_by_ability(cases).items():
        marks = ["yes" if language in languages else "no" for language in LANGUAGES]
        lines.append(f"| {ability} | {' | '.join(marks)} |")
    return "\n".join(lines)


def short_form_of(cases: list[Case]) -> str:
    """Return a line for each group of languages that have abilities which others lack."""
    abilities: dict[tuple[str, ...], list[str]] = {}
    for ability, languages in languages_by_ability(cases).items():
        if languages != LANGUAGES:
            abilities.setdefault(languages, []).append(ability)
    return "\n".join(
        f"- {', '.join(NAMES[language] for language in languages)} only: {'; '.join(found)}."
        for languages, found in abilities.items()
    )


def languages_by_ability(cases: list[Case]) -> dict[str, tuple[str, ...]]:
    """Return the abilities in order, each with the languages that run all cases of the ability."""
    return {
        ability: tuple(
            language
            for language in LANGUAGES
            if all(language in case.languages for case in cases if case.ability == ability)
        )
        for ability in dict.fromkeys(case.ability for case in cases)
    }


if __name__ == "__main__":
    cases = load()
    contents = {ROOT / "clients" / "README.md": table_of(cases), ROOT / "README.md": short_form_of(cases)}
    sys.exit(write_or_check({page: with_abilities(page, content) for page, content in contents.items()}))
