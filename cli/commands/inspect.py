# SPDX-License-Identifier: Apache-2.0
"""`reput inspect FILE`: offline dump and check of any store file (cli/inspect/store.py does the work)."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from cli.exit_codes import CommandFailed, ExitCode
from cli.inspect.inspection import Finding, Item, UnknownKind
from cli.output.figures import counted
from cli.output.lines import JsonOption, print_json, write
from cli.output.progress import progress
from cli.output.tables import cell, output_width, text_width, title_of


def inspect(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A file of the store.")],
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="segment, consume_queue, index_file, checkpoint, … [default: by name and content]"
        ),
    ] = None,
    start: Annotated[int, typer.Option(min=0, help="First item to show.")] = 0,
    limit: Annotated[int | None, typer.Option(min=0, help="Most items to show. [default: all]")] = None,
    check: Annotated[bool, typer.Option("--check", help="Show no items, only what is wrong.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a store file and all that is wrong in it. Exit code 6 if anything is. Nothing is changed.

    Example: reput inspect reput-data/checkpoint
    """
    from cli.inspect.store import inspect_file  # brings numpy along, which other commands need not wait for

    try:
        with progress("inspect", file.stat().st_size) as meter:
            inspection = inspect_file(file, kind=kind, start=start, limit=0 if check else limit, progress=meter.show)
            for step in inspection:
                _print_step(step, as_json=as_json)
    except UnknownKind as error:
        raise CommandFailed("UNKNOWN_KIND", str(error), code=ExitCode.USAGE) from error
    summary = {
        "kind": inspection.kind,
        "size_bytes": inspection.size_bytes,
        **inspection.summary,
        "finding_count": inspection.finding_count,
    }
    if as_json:
        print_json({"summary": summary})
    else:
        write(
            f"{file}: " + ", ".join(f"{title_of(name)} {cell(name, value)}" for name, value in summary.items()) + "\n"
        )
    if not inspection.is_sound:
        raise CommandFailed(
            "DAMAGED", f"{counted(inspection.finding_count, 'finding')} in {file}", code=ExitCode.DAMAGED
        )


def _print_step(step: Item | Finding, *, as_json: bool) -> None:
    if as_json:
        print_json({"finding" if isinstance(step, Finding) else "item": dataclasses.asdict(step)})
    elif isinstance(step, Finding):
        typer.secho(f"WRONG at byte {step.position}: {step.item}, {step.field}: {step.message}", fg="red")
    else:
        fields = [f"{name}={value!r}" for name, value in step.fields.items()]
        write(f"{filled(f'{step.kind} {step.number} at {step.position}:', fields, output_width())}\n")


def filled(head: str, pieces: Iterable[str], width: int) -> str:
    """Return the pieces in lines as long as the width lets them be. No piece is broken."""
    lines = [head]
    for piece in pieces:
        if text_width(lines[-1]) + 1 + text_width(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"    {piece}")
    return "\n".join(lines)
