# SPDX-License-Identifier: Apache-2.0
"""`reput inspect FILE`: offline dump and check of any store file (cli/inspect/store.py does the work)."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from cli.exit_codes import CommandFailed, ExitCode
from cli.inspect.inspection import Finding, Item, UnknownKind
from cli.output.lines import JsonOption, print_json, printable, styled, write
from cli.output.moments import time_text
from cli.output.progress import progress
from cli.output.tables import cell, output_width, table_lines
from cli.output.wrapping import beside
from libs.figures import counted

TABLED = frozenset({"unit", "entry", "epoch", "delay level", "group", "topic"})
"""Kinds of items that are many and small."""
TABLE_ROWS_MAX = 100
"""After so many rows the titles are repeated."""
TIME_MS_MAX = 253_402_300_800_000
"""The year 10000, which Python's calendar does not have."""


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
    check: Annotated[bool, typer.Option("--check", help="Show no items, only faults.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a store file and all faults in it. Exit code 6 if there is a fault. Nothing is changed.

    Example: reput inspect reput-data/checkpoint
    """
    from cli.inspect.store import inspect_file  # imports numpy, which other commands need not wait for

    try:
        with progress("inspect", file.stat().st_size) as meter:
            inspection = inspect_file(file, kind=kind, start=start, limit=0 if check else limit, progress=meter.show)
            for steps in _together(inspection):
                _print_steps(steps, as_json=as_json)
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
        write("".join(f"{line}\n" for line in _block(str(file), exact(summary))))
    if not inspection.is_sound:
        raise CommandFailed(
            "DAMAGED", f"{counted(inspection.finding_count, 'finding')} in {file}", code=ExitCode.DAMAGED
        )


def _together(steps: Iterable[Item | Finding]) -> Iterator[list[Item | Finding]]:
    """Yield steps that are printed together: consecutive items of a table, up to TABLE_ROWS_MAX, else a single step."""
    for shape, some in itertools.groupby(steps, _shape):
        if not shape:
            yield from ([step] for step in some)
        while shape and (rows := list(itertools.islice(some, TABLE_ROWS_MAX))):
            yield rows


def _shape(step: Item | Finding) -> tuple[str, ...]:
    """Return the kind and the fields of a row, () for a step that is no row of a table."""
    return (step.kind, *step.fields) if isinstance(step, Item) and step.kind in TABLED else ()


def _print_steps(steps: list[Item | Finding], *, as_json: bool) -> None:
    items = [step for step in steps if isinstance(step, Item)]
    if as_json:
        for step in steps:
            print_json({"finding" if isinstance(step, Finding) else "item": structs.asdict(step)})
    elif items and items[0].kind in TABLED:
        rows = [{item.kind: item.number, "at": item.position, **exact(item.fields)} for item in items]
        write("".join(f"{line}\n" for line in [*table_lines(rows, tuple(rows[0]), output_width()), ""]))
    elif items:
        head = f"{items[0].kind} {items[0].number} at {items[0].position}"
        write("".join(f"{line}\n" for line in [*_block(head, exact(items[0].fields)), ""]))
    else:
        for step in steps:
            assert isinstance(step, Finding)
            typer.secho(f"WRONG at byte {step.position}: {step.item}, {step.field}: {step.message}", fg="red")


def _block(head: str, fields: Mapping[str, object]) -> Iterator[str]:
    """Yield a line for the head, and a line for each field."""
    yield styled(printable(head), bold=True)
    width = max(map(len, fields), default=0)
    for title, value in fields.items():
        yield from beside(f"  {title}", width + 4, cell(title, value), output_width())


def exact(values: Mapping[str, object]) -> dict[str, object]:
    """Return titles and values. Sizes and times are as the file has them. A time is also shown as text."""
    fields: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}={one}" for key, one in value.items())
        elif name.endswith("time_ms") and isinstance(value, int) and 0 < value < TIME_MS_MAX:
            value = f"{value} ({time_text(value)})"
        fields[name.replace("_", " ")] = value
    return fields
