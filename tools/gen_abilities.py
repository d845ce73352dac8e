# SPDX-License-Identifier: Apache-2.0
"""Writes the table ability by language in clients/README.md from the cases that the clients pass.

Run it as `python -m tools.gen_abilities`; with `--check` it writes nothing and fails when the page is out of date.
"""

import argparse
import re
import sys
from pathlib import Path

from tests.clients.cases import LANGUAGES, Case, load

PAGE = Path(__file__).parent.parent / "clients" / "README.md"
BEGIN, END = "<!-- abilities: made by tools/gen_abilities.py -->", "<!-- end of abilities -->"
NAMES = {"python": "Python", "go": "Go", "java": "Java", "node": "Node"}


def main() -> int:
    """Write or check the page. Returns the exit code, which is 1 when a check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail instead of writing")
    before = PAGE.read_text(encoding="utf-8")
    part = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    after = part.sub(lambda _: f"{BEGIN}\n{table_of(load())}\n{END}", before)
    assert part.search(before), f"{PAGE} has no part for the table"
    if not parser.parse_args().check:
        PAGE.write_text(after, encoding="utf-8")
    elif after != before:
        print(f"{PAGE.name} of the clients is out of date: run python -m tools.gen_abilities")
        return 1
    return 0


def table_of(cases: list[Case]) -> str:
    """Return the Markdown table: a language has an ability if it runs all cases of the ability."""
    lines = [
        f"| ability | {' | '.join(NAMES[language] for language in LANGUAGES)} |",
        f"|---|{'---|' * len(LANGUAGES)}",
    ]
    for ability in dict.fromkeys(case.ability for case in cases):
        own = [case for case in cases if case.ability == ability]
        marks = ["yes" if all(language in case.languages for case in own) else "no" for language in LANGUAGES]
        lines.append(f"| {ability} | {' | '.join(marks)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
