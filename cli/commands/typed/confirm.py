# SPDX-License-Identifier: Apache-2.0
"""The question before a deletion or another change that can't be undone."""

import sys

import typer

from cli.exit_codes import CommandFailed, ExitCode
from cli.input_lines import is_terminal
from cli.output.lines import printable

YesOption = typer.Option("--yes", "-y", help="Do not ask.")


def confirm(what: str, *, place: str, yes: bool) -> None:
    """Return if the answer is yes. `what` is the action and its extent, as in `delete 3 segments (3 GiB)`.

    `place` names the store. Raises CommandFailed for a no, and if standard input is no terminal.
    """
    if yes:
        return
    if not is_terminal():
        text = f"at {place} this would {what}; nobody can be asked here: say --yes"
        raise CommandFailed("NOT_CONFIRMED", text, code=ExitCode.USAGE)
    sys.stderr.write(f"At {printable(f'{place}: {what}')}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("NOT_CONFIRMED", "nothing was changed", code=ExitCode.USAGE)
