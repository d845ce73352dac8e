# SPDX-License-Identifier: Apache-2.0
"""Writes docs/cli.md from the command tree: `python -m cli.document`."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from cli.commands.messages.sources import FILE_FIELDS
from cli.exit_codes import MEANINGS, REASONS, SERVE_MEANINGS
from cli.registry import app
from cli.verify.codes import CODES, Area

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
WIDTH = 100

INTRODUCTION = """# The command line

<!-- Written by `python -m cli.document` from the command tree; do not edit. -->

`reput` runs the services and talks to them.
The address of the store is given before the command: `reput --store host:8081 query key orders k1`.
It is the address of a gateway, which passes calls on to each service ([door.md](door.md)).
`--commitlog`, `--indexer`, `--janitor` and `--delivery` are for calls to a single service without the gateway between.
Without any address commands ask the services at their usual ports on this machine.
An option that is not given comes from variables (`REPUT_CLIENT_…`), then from the context in use (`reput context use`).
`--context NAME` uses the store of this name, even if the variables name another store.
Results are written to standard output, all other lines to standard error.
With `--json` a list is one JSON object per line, and any other result is a single object.
Sizes and times are printed rounded and with units, and exactly with `--json`.
Times are accepted as ISO 8601 (local time without a zone), as a distance from now (`-1h`, `-1h30m`, `2 hours ago`), as
`now`, `today`, `yesterday`, `01:00` (of today) or `yesterday 01:00`, or as milliseconds since the epoch.
They are printed in UTC with a Z, or in tables in local time.
A local time that the change to summer time skips is read with the UTC offset before the change; a local time that
comes twice in autumn means the first.
A command that deletes asks first, and says how much it would delete. `--yes` answers the question; it is required where
standard input is no terminal.
`reput --install-completion` installs completion of commands and options in the shell.
A body that is not UTF-8 text is printed in hexadecimal, and as `body_base64` with `--json`; `--raw` prints bodies as
they are. Bodies that a client has compressed are printed inflated.
A command that fails prints one line, `error: REASON: text`. Reasons of the services are in [errors.md](errors.md); an
answer that did not come from Reput has gRPC's name of its status code instead. The command's own reasons are below.
A command line that can't be read gives a usage text instead of a reason.
"""

SERVE_NOTE = """`reput serve SERVICE` accepts every setting of the service as a flag; they are in
[configuration.md](configuration.md). `reput up` gives the exit code of the service that failed.
"""

VERIFY_NOTE = """## What `reput verify` finds

A fault gives exit code 6; a note does not. After an unclean stop, a finding that the next start repairs is a note.
`--only` accepts the parts below; findings about the store as a whole are always reported.
"""

AREA_TITLES = {
    Area.LOG: "The log (`log`)",
    Area.QUEUES: "Queues (`queues`)",
    Area.INDEX: "Index files (`index`)",
    Area.FILES: "Small files (`files`)",
    None: "The store as a whole",
}

FILE_NOTE = "Each line of `reput put --file` is a JSON object with either `body` or `body_base64`; all keys: "
STDIN_NOTE = """A line of standard input ends with LF or CRLF; further carriage returns belong to the body.
Where standard input is closed (`<&-`), a command that would read it is refused with exit code 2.
"""


def page() -> str:
    """Return the whole page."""
    parts = [
        INTRODUCTION,
        "## Exit codes\n",
        _codes(MEANINGS),
        f"`reput serve` and `reput up`:\n\n{_codes(SERVE_MEANINGS)}",
    ]
    parts.append(SERVE_NOTE)
    reasons = _table("Reason | Meaning", (f"`{reason}` | {meaning}" for reason, meaning in REASONS.items()))
    parts.append(f"## Reasons of the command itself\n\n{reasons}")
    parts.append(FILE_NOTE + ", ".join(f"`{name}`" for name in FILE_FIELDS) + ".\n")
    parts += [STDIN_NOTE, VERIFY_NOTE]
    parts += [f"### {title}\n\n{_findings(area)}" for area, title in AREA_TITLES.items()]
    for path, text in _helps(typer.main.get_command(app), "reput", None):
        parts.append(f"## `{path}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _table(header: str, rows: Iterable[str]) -> str:
    """Return a table. Cells are separated by bars."""
    return "\n".join([f"| {header} |", "|" + "---|" * (header.count("|") + 1), *(f"| {row} |" for row in rows), ""])


def _codes(meanings: Any) -> str:
    return _table("Code | Meaning", (f"{int(code)} | {meaning}" for code, meaning in meanings.items()))


def _findings(area: Area | None) -> str:
    found = ((name, code) for name, code in CODES.items() if code.area == area)
    rows = (f"`{name}` | {code.severity} | {code.meaning} | {code.action}" for name, code in found)
    return _table("Code | | Meaning | What to do", rows)


def _helps(command: Any, path: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Yield every command's path and help, depth first, in the order of the tree."""
    context = command.make_context(
        path.rpartition(" ")[2], [], parent=parent, resilient_parsing=True, terminal_width=WIDTH
    )
    if "--help" in command.get_help_option_names(context):
        yield path, "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())
    for name, child in getattr(command, "commands", {}).items():
        yield from _helps(child, f"{path} {name}", context)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("usage: python -m cli.document (it writes docs/cli.md; tests compare the page)")
    PAGE.write_text(page(), encoding="utf-8")
