# SPDX-License-Identifier: Apache-2.0
"""Writes the table ability by language in clients/README.md, and its short form in README.md, from the clients' cases.

Run it as `python -m tools.gen_abilities`; with `--check` it writes nothing and fails when a page is out of date.
"""

import argparse
import re
import sys
from pathlib import Path

from tests.clients.cases import LANGUAGES, Case, load

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- abilities: made by tools/gen_abilities.py -->", "<!-- end of abilities -->"
PART = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
NAMES = {"python": "Python", "go": "Go", "java": "Java", "node": "Node"}


def main() -> int:
    """Write or check the page. Returns the exit code, which is 1 when a check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail instead of writing")
    is_check, code, cases = parser.parse_args().check, 0, load()
    for page, content in (("clients/README.md", table_of(cases)), ("README.md", short_form_of(cases))):
        before = (ROOT / page).read_text(encoding="utf-8")
        part = PART.search(before)
        assert part is not None, f"{page} has no part for abilities"
        after = before[: part.start()] + f"{BEGIN}\n{content}\n{END}" + before[part.end() :]
        if not is_check:
            (ROOT / page).write_text(after, encoding="utf-8")
        elif after != before:
            print(f"{page} is out of date: run python -m tools.gen_abilities")
            code = 1
    return code


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
    sys.exit(main())
