# SPDX-License-Identifier: Apache-2.0
"""`make bench`: run the scenarios in turn, several rounds, and print the medians; JSON and a table go to a folder."""

import argparse
import json
import os
import platform
import statistics
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.scenarios import SCENARIOS, Figures, Scenario

PACKAGES = ("grpcio", "protobuf", "uvloop", "isal", "pyarrow")


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "revision": git.stdout.strip(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpu_count": os.cpu_count(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def medians(runs: list[Figures]) -> dict[str, float]:
    """Median of each figure over the runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def table(results: dict[str, list[Figures]]) -> str:
    """The medians as Markdown, with the spread of the runs."""
    lines = ["| scenario | figure | median | lowest | highest |", "|---|---|---:|---:|---:|"]
    for name, runs in results.items():
        for figure, median in medians(runs).items():
            values = [run[figure] for run in runs]
            lines.append(f"| {name} | {figure} | {median:,.2f} | {min(values):,.2f} | {max(values):,.2f} |")
    return "\n".join(lines) + "\n"


def run(scenarios: list[Scenario], rounds: int, seconds: float) -> dict[str, list[Figures]]:
    """All scenarios, interleaved, so that a slow minute of the machine touches all of them."""
    results: dict[str, list[Figures]] = {scenario.name: [] for scenario in scenarios}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=rounds * len(scenarios))
        for _ in range(rounds):
            for scenario in scenarios:
                progress.update(task, description=scenario.name)
                results[scenario.name].append(scenario.measure(seconds))
                progress.advance(task)
    return results


def show(results: dict[str, list[Figures]]) -> None:
    """Print the medians for people."""
    view = Table("scenario", "figure", "median", title="medians")
    for name, runs in results.items():
        for figure, median in medians(runs).items():
            view.add_row(name, figure, f"{median:,.2f}")
    Console().print(view)


def main() -> None:
    """Read the arguments, measure, write, print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="which scenarios to run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each scenario (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one load (default 2)")
    parser.add_argument(
        "--out", type=Path, default=Path("bench/results/local"), help="folder for bench.json and bench.md"
    )
    arguments = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if scenario.name in arguments.only]
    results = run(chosen, arguments.rounds, arguments.seconds)
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "seconds": arguments.seconds, "runs": results}
    (arguments.out / "bench.json").write_text(json.dumps(document, indent=2))
    (arguments.out / "bench.md").write_text(table(results))
    show(results)


if __name__ == "__main__":
    main()
