# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.attack`: greedy clients and hostile requests against real services.

The end is a table of the cost of each row, and the code 1 if a row broke a promise. Rows run in turn, each with
services of its own.
"""

import argparse
import asyncio
import dataclasses
import json
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.attack import fuzz
from tests.attack.row import Measured, Row, violations
from tests.attack.rows import ROWS, run

SEED_BITS = 31
FUZZ = "fuzz"
TABLE_WIDTH = 140


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    names = [*(row.name for row in ROWS), FUZZ]
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description="Be greedy, and see what it costs.")
    parser.add_argument("--only", default="", help=f"rows or services to attack, with commas; {', '.join(names)}")
    parser.add_argument("--seed", type=int, help="seed of the hostile requests and frames (default: by chance)")
    parser.add_argument("--count", type=int, default=200_000, help="hostile requests (default: 200,000)")
    parser.add_argument("--seconds", type=float, help="how long each greedy client works (default: 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured there")
    options = parser.parse_args()
    asked = [name for name in options.only.split(",") if name]
    options.only = [name for one in asked for name in _rows_of(one)] or names
    unknown = [name for name in options.only if name not in names]
    if unknown:
        parser.error(f"unknown row {unknown[0]!r}; known are {', '.join(names)}")
    if options.seed is None:
        options.seed = random.SystemRandom().getrandbits(SEED_BITS)
    return options


def _rows_of(name: str) -> list[str]:
    """The rows of a service, or the row of this name."""
    return [row.name for row in ROWS if row.target == name] or [name]


def show_row(console: Console, row: Row, found: Measured) -> None:
    """Print the result of a row, as soon as it is known."""
    broken = violations(row, found)
    verdict = "BROKEN" if broken else "ok"
    console.print(f"{row.name}: {verdict} {found.client}", markup=False, highlight=False, soft_wrap=True)
    for text in broken:
        console.print(f"    {text}", markup=False, highlight=False, soft_wrap=True)


def show_table(console: Console, results: list[tuple[Row, Measured]]) -> None:
    """The table of all rows."""
    table = Table(title="greedy clients", title_justify="left")
    for name in ("client", "service", "judged by"):
        table.add_column(name)
    for name in (
        "MiB at start",
        "peak",
        "after",
        "longest pause ms",
        "of work",
        "append p99 ms",
        "calm",
        "share",
        "polite",
        "verdict",
    ):
        table.add_column(name, justify="right")
    for row, found in results:
        broken = violations(row, found)
        numbers = (found.start_mib, found.peak_mib, found.kept_mib, found.pause_ms, found.work_ms)
        latencies = (found.append_p99_ms, found.calm_p99_ms)
        verdict = "BROKEN" if broken else "ok"
        shown = [f"{value:,.0f}" for value in numbers] + [f"{value:,.1f}" for value in latencies]
        shown += [f"{found.share:.2f}", f"{found.polite_p99_ms:,.1f}"]
        table.add_row(row.name, row.target, ", ".join(row.checks), *shown, verdict)
    console.print(table)


def main() -> int:
    """Run the rows that were asked for. Returns 1 if a row broke a promise, else 0."""
    options = parse_options()
    console = Console(width=TABLE_WIDTH)
    console.print(f"seed {options.seed}")
    results: list[tuple[Row, Measured]] = []
    report: fuzz.Report | None = None
    with tempfile.TemporaryDirectory(prefix="reput-attack-") as directory:
        for row in ROWS:
            if row.name in options.only:
                asked = dataclasses.replace(row, seconds=options.seconds or row.seconds, seed=options.seed)
                found = asyncio.run(run(asked, Path(directory)))
                results.append((asked, found))
                show_row(console, asked, found)
        if FUZZ in options.only:
            report = asyncio.run(fuzz.run(Path(directory), seed=options.seed, count=options.count))
            report.show(console)
    show_table(console, results)
    broken = {row.name: violations(row, found) for row, found in results}
    if report is not None:
        broken[FUZZ] = report.violations
    if options.json:
        rows = [dataclasses.asdict(row) | dataclasses.asdict(found) for row, found in results]
        whole = {"seed": options.seed, "rows": rows, "fuzz": report and vars(report), "broken": broken}
        options.json.write_text(json.dumps(whole, indent=2) + "\n")
    return int(any(broken.values()))


if __name__ == "__main__":
    sys.exit(main())
