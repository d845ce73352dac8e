# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of settings in docs/configuration.md from the configuration classes.

Run it as `python -m tools.gen_config_docs`; with `--check` it writes nothing and fails when the page is out of date.
Everything outside of the marked parts of the page is written by hand.
"""

import functools
import importlib
import re
import sys
from pathlib import Path

from libs.runtime.config import SECTIONS, Field, environment_name, fields_of, flag_name
from tools.written import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def tables_of(section: str) -> str:
    """Return the Markdown tables of a service's settings: the basic settings, then the advanced settings."""
    fields = fields_of(importlib.import_module(f"services.{section}.bootstrap").Settings)
    example = fields[0].name
    basic, advanced = ([field for field in fields if field.is_basic is is_basic] for is_basic in (True, False))
    flag, variable = flag_name(example), environment_name(section, example)
    return "\n\n".join(
        [
            f"Table `[{section}]`; for example `{example}` is `{flag}` and `{variable}`.",
            f"### Basic settings of `{section}`",
            _table(basic),
            f"### Advanced settings of `{section}`",
            _table(advanced),
        ]
    )


def with_tables(page: str, section: str) -> str:
    """Put the tables of a section between its markers. Raises ValueError when the page has no such markers."""
    pattern = re.compile(rf"(<!-- settings of {section} -->\n).*?(<!-- end -->)", re.DOTALL)
    page, count = pattern.subn(lambda match: f"{match[1]}\n{tables_of(section)}\n\n{match[2]}", page)
    if count != 1:
        raise ValueError(f"{PAGE.name} needs exactly one part for {section}, but has {count}")
    return page


def _table(fields: list[Field]) -> str:
    lines = ["| Key and flag | Default | Must be | What it does |", "|---|---|---|---|"]
    return "\n".join(lines + [_row(field) for field in fields])


def _row(field: Field) -> str:
    text = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    default = "required" if field.is_required else f"`{text}`" if field.default not in ("", None) else ""
    cells = (f"`{field.name}`", default, field.expectation, field.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: functools.reduce(with_tables, SECTIONS, PAGE.read_text(encoding="utf-8"))}))
