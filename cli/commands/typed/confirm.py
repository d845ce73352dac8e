# SPDX-License-Identifier: Apache-2.0
"""The question in front of what deletes or can't be taken back."""

import sys

import typer

from cli.exit_codes import CommandFailed, ExitCode
from cli.input_lines import is_terminal
from cli.output.lines import printable

YesOption = typer.Option("--yes", "-y", help="Do not ask.")


def confirm(what: str, *, place: str, yes: bool) -> None:
    """Return if the answer is yes. `what` says what would happen and how much it is, as in `delete 3 segments (3 GiB)`.

    `place` says which store it is. Raises CommandFailed for a no, and where nobody can be asked.
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
