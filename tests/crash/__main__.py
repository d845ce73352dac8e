# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash`: runs the parts of the crash harness, shows their counts, exits 1 if any promise broke.

Parts run in turn, in the order of PART_NAMES, so that each has the machine for itself. A part that can't run here says
why, in the table and on standard error; that is no violation.
"""

import argparse
import dataclasses
import importlib
import importlib.util
import json
import random
import sys
import time
import traceback
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash.part import Part, PartReport, Violation, repeat_command

PART_NAMES = ("sim", "cluster", "kill", "messaging", "shards", "clocks", "fault", "power", "rounds")
SIZES = ("ci", "long")
SEED_BITS = 31


def find_parts(names: list[str]) -> list[Part]:
    """Import the parts of these names. Raises ModuleNotFoundError for a part that does not exist."""
    return [importlib.import_module(f"tests.crash.{name}").PART for name in names]


def existing_names() -> list[str]:
    """Return the names of the parts that are there."""
    specs = {name: importlib.util.find_spec(f"tests.crash.{name}") for name in PART_NAMES}
    return [name for name, spec in specs.items() if spec is not None and spec.origin is not None]


def run_part(part: Part, options: argparse.Namespace, progress: Progress) -> tuple[PartReport, float]:
    """Run a part. A harness that breaks is a violation, too. Returns its report and how long it took, in seconds."""
    count = options.count or part.counts_by_size[options.size]
    task = progress.add_task(part.name, total=count)
    start_s = time.monotonic()
    try:
        report = part.run(
            first_seed=options.seed,
            count=count,
            jobs=options.jobs,
            advance=lambda done_count: progress.advance(task, done_count),
        )
    except Exception:  # noqa: BLE001 - the other parts run nevertheless
        what = f"the harness broke:\n{traceback.format_exc()}"
        report = PartReport(part.name, {}, [Violation(options.seed, what, repeat_command(part.name, options.seed))])
    return report, time.monotonic() - start_s


def show(console: Console, reports: list[tuple[PartReport, float]], seed: int) -> None:
    """Print the table of all parts, then skipped parts and each violation."""
    table = Table(title=f"crash harness, first seed {seed}", title_justify="left")
    for name in ("part", "what was done", "violations"):
        table.add_column(name)
    table.add_column("seconds", justify="right")
    for report, duration_s in reports:
        done = "\n".join(f"{count:,} {name}" for name, count in report.counts.items())
        if report.skipped:
            done = f"{done}\nSKIPPED: {report.skipped}".strip()
        table.add_row(report.name, escape(done), str(len(report.violations)), f"{duration_s:.1f}")
    console.print(table)
    for report, _ in reports:
        if report.skipped:
            console.print(f"SKIPPED in {report.name}: {report.skipped}", style="bold yellow", markup=False)
        for violation in report.violations:
            console.print(f"\nVIOLATION in {report.name}, seed {violation.seed}", style="bold red", markup=False)
            console.print(violation.what, markup=False, highlight=False, soft_wrap=True)
            console.print(f"repeat: {violation.command}", markup=False, highlight=False, soft_wrap=True)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="Break it, and check what is promised.")
    parser.add_argument("--size", choices=SIZES, default="ci", help="how many cases (default: ci)")
    parser.add_argument("--only", default="", help=f"parts to run, with commas between; of {', '.join(PART_NAMES)}")
    parser.add_argument("--seed", type=int, help="seed of the first case; the others follow (default: by chance)")
    parser.add_argument("--count", type=int, help="cases of each part, instead of those of the size")
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at once (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all reports there")
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name] or existing_names()
    unknown = [name for name in options.only if name not in PART_NAMES]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; known are {', '.join(PART_NAMES)}")
    if options.seed is None:
        options.seed = random.SystemRandom().getrandbits(SEED_BITS)
    return options


def main() -> int:
    """Run the parts that were asked for; 1 if any promise broke, else 0."""
    options = parse_options()
    console = Console()
    console.print(f"first seed {options.seed}, size {options.size}, parts {', '.join(options.only)}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        reports = [run_part(part, options, progress) for part in find_parts(options.only)]
    show(console, reports, options.seed)
    if options.json:
        rows = [{**dataclasses.asdict(report), "duration_s": duration_s} for report, duration_s in reports]
        options.json.write_text(json.dumps({"first_seed": options.seed, "parts": rows}, indent=2) + "\n")
    return int(any(report.violations for report, _ in reports))


if __name__ == "__main__":
    sys.exit(main())
