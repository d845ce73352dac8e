# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: run the scenarios on Reput and the systems beside it, in turn; write JSON, a report and charts.

The results so far are written after each round. Exit code 1 if anything failed; a system that this machine lacks is
named and is no failure.
"""

import argparse
import json
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import machine, report
from bench.driver import Driver, Plan, Systems
from bench.peers.registry import ROOMS
from bench.report import Subject
from bench.scenarios import SCENARIOS, of_size
from bench.scenarios.model import SHORT_ROUND_COUNT, SIZES, Scenario

ROUND_COUNTS = {"short": SHORT_ROUND_COUNT, "full": 5}
SECONDS = {"short": 1.0, "full": 3.0}
INTERRUPTED = 130

console = Console(stderr=True)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, allow_abbrev=False)
    parser.add_argument("--size", choices=SIZES, default="short", help="short is under ten minutes (default)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="these scenarios, of any size")
    parser.add_argument("--peer", nargs="+", metavar="NAME", choices=ROOMS, help=f"these systems: {', '.join(ROOMS)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="runs of each scenario (default 3 short, 5 full)")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of a load (default 1 short, 3 full)")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("bench/results/local"), help="where results go")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=Path(tempfile.gettempdir()),
        help="where the systems keep their files",
    )
    parser.add_argument("--list", action="store_true", help="show the scenarios and end")
    return parser


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Return the plan that the command line asks for."""
    peers = arguments.peer or list(ROOMS)
    if arguments.only:
        chosen = [scenario for scenario in SCENARIOS if scenario.name in arguments.only]
    else:
        chosen = of_size(arguments.size)
    return Plan(
        scenarios=[scenario for scenario in chosen if any(peer in scenario.peers for peer in peers)],
        peers=peers,
        round_count=arguments.rounds or ROUND_COUNTS[arguments.size],
        seconds=arguments.seconds or SECONDS[arguments.size],
        size=arguments.size,
        data_dir=arguments.data,
    )


def show(scenarios: tuple[Scenario, ...]) -> None:
    """Print the scenarios that there are."""
    for scenario in scenarios:
        size = "short, full" if scenario.short_round_count_max else "full"
        print(f"{scenario.name}  [{size}, {scenario.mode}]  {scenario.sentence}  ({', '.join(scenario.peers)})")


def write(driver: Driver, subject: Subject, folder: Path) -> None:
    """Write bench.json and bench.md as of now."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {name: value for name, value in asdict(subject).items() if name != "scenarios"}
    document["scenarios"] = {scenario.name: scenario.sentence for scenario in subject.scenarios}
    document["modes"] = {scenario.name: scenario.mode for scenario in subject.scenarios}
    document["runs"] = [asdict(run) for run in driver.results.runs]
    (folder / "bench.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    (folder / "bench.md").write_text(report.markdown(subject, driver.results))


def run(plan: Plan, folder: Path) -> int:
    """Prepare, measure round by round, write. Returns the exit code."""
    facts = machine.machine(plan.data_dir)
    wanted = [name for name in plan.peers if any(name in scenario.peers for scenario in plan.scenarios)]
    with console.status("preparing"):
        systems = Systems.prepared(wanted)
    for name, text in (systems.missing | systems.broken).items():
        console.print(f"{name} is left out: {text}", markup=False)
    driver = Driver(plan, systems)

    def subject(round_done_count: int) -> Subject:
        return Subject(
            scenarios=plan.scenarios,
            peer_names={name: systems.ready[name].name if name in systems.ready else name for name in wanted},
            machine=facts,
            seconds=plan.seconds,
            round_count=plan.round_count,
            round_done_count=round_done_count,
            versions=systems.versions,
            settings=systems.settings(),
            missing=systems.missing,
            broken=systems.broken,
            skipped=driver.skipped,
        )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done_count, is_interrupted = 0, False
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=plan.run_count)

        def tell(text: str) -> None:
            line = f"round {done_count + 1} of {plan.round_count}: {text}"
            progress.update(task, description=line, advance=1)
            if not console.is_terminal:
                console.print(line, markup=False, highlight=False)

        try:
            for number in range(1, plan.round_count + 1):
                driver.run_round(number, tell)
                done_count = number
                write(driver, subject(done_count), folder)
        except KeyboardInterrupt:
            is_interrupted = True
    finish(driver, subject(done_count), folder)
    if is_interrupted:
        return INTERRUPTED
    return 1 if driver.results.has_failed or systems.broken else 0


def finish(driver: Driver, subject: Subject, folder: Path) -> None:
    """Write everything, charts too, and say where."""
    from bench import charts  # brings matplotlib along, which takes a second

    write(driver, subject, folder)
    charts.draw(subject, driver.results, folder)
    for line in report.troubles(subject, driver.results):
        console.print(line, markup=False, highlight=False)
    console.print(f"written to {folder}", markup=False)


def main() -> int:
    """Read the arguments and run the plan that they ask for."""
    arguments = parser().parse_args()
    if arguments.list:
        show(SCENARIOS)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers are stopped, and the results so far are written
    return run(plan_of(arguments), arguments.out)


if __name__ == "__main__":
    sys.exit(main())
