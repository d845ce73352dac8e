# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.harm`: harms every file of a store in every way, and shows the services' reaction.

The end is a table of outcomes, each broken trial with the command that repeats it, and the code 1 if there is a broken
trial. First an unharmed store goes through the same course: it must be whole.
"""

import argparse
import asyncio
import dataclasses
import fnmatch
import functools
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash.nursery import Nursery
from tests.crash.workers import run_seeds
from tests.harm.harms import HARMS
from tests.harm.judge import Facts, Judgement, Verdict, event_of, is_loud, judge
from tests.harm.template import Template, make_templates
from tests.harm.trial import MOMENTS, NOTHING, Trial, run_trial, trials_of

SEED_BITS = 31
SHOWN_COUNT = 6
TABLE_WIDTH_MIN = 120


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """A trial and its judgement."""

    trial: Trial
    judgement: Judgement
    seed: int

    @property
    def command(self) -> str:
        """Repeats it alone."""
        return f"make harm ONLY='{self.trial.name}' SEED={self.seed}"


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.harm", description="Harm each file, and ask everything.")
    parser.add_argument(
        "--only",
        default="*",
        help=f"trials to run, a pattern of MOMENT:HARM:FILE with * and ?; moments are {', '.join(MOMENTS)}; "
        f"harms {', '.join(HARMS)}",
    )
    parser.add_argument("--seed", type=int, help="seed of the random bytes (default: by chance)")
    parser.add_argument("--jobs", type=int, default=2, help="trials that run at once (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each trial and its judgement there")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().getrandbits(SEED_BITS)
    return options


def run(
    trials: Sequence[Trial], templates: Mapping[str, Template], options: argparse.Namespace, progress: Progress
) -> Iterator[tuple[Trial, Facts]]:
    """Run trials and yield the facts of each, as it comes."""
    task = progress.add_task("trials", total=len(trials))
    case = functools.partial(run_trial, trials, templates, options.seed)
    for index, facts in run_seeds(case, range(len(trials)), jobs=options.jobs):
        progress.advance(task)
        if facts is not None:
            yield trials[index], facts


async def make(directory: Path) -> Mapping[str, Template]:
    """Make the stores to harm."""
    nursery = await Nursery.start()
    try:
        return await make_templates(nursery, directory)
    finally:
        await nursery.close()


def results_of(directory: Path, options: argparse.Namespace, console: Console) -> list[Result]:
    """Make the stores, run the calm trials, then the chosen trials."""
    templates = asyncio.run(make(directory))
    chosen = [one for one in trials_of(templates) if fnmatch.fnmatchcase(one.name, options.only)]
    calm = [Trial("-", NOTHING, moment, "-") for moment in MOMENTS]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: list[Result] = []
    with Progress(*columns, console=console) as progress:
        usual: set[str] = set()
        for trial, facts in run(calm, templates, options, progress):
            usual.update(event_of(line) for _, line in facts.lines if is_loud(line))
            results.append(Result(trial, judge(facts), options.seed))
        for trial, facts in run(chosen, templates, options, progress):
            results.append(Result(trial, judge(facts, frozenset(usual)), options.seed))
            if results[-1].judgement.verdict is Verdict.BROKEN:
                progress.print(f"broken: {results[-1].trial.name}", soft_wrap=True, highlight=False)
    return results


def is_broken(result: Result) -> bool:
    """Whether the trial fails the run. A calm store must be whole."""
    is_calm = result.trial.harm == NOTHING
    return result.judgement.verdict is Verdict.BROKEN or (is_calm and result.judgement.verdict is not Verdict.WHOLE)


def show(console: Console, results: Sequence[Result]) -> None:
    """The table, then each broken trial."""
    counts = Counter((one.trial.harm, one.trial.moment, one.judgement.verdict) for one in results)
    table = Table(title="harmed files", title_justify="left")
    table.add_column("harm")
    for moment in MOMENTS:
        for verdict in Verdict:
            table.add_column(f"{moment}\n{verdict.value}", justify="right")
    for harm in (NOTHING, *HARMS):
        table.add_row(harm, *(str(counts[harm, moment, verdict]) for moment in MOMENTS for verdict in Verdict))
    console.print(table)
    for one in sorted((one for one in results if is_broken(one)), key=lambda one: one.trial.file):
        console.print(
            f"\nBROKEN {one.trial.label}, {one.trial.harm}, {one.trial.moment}", style="bold red", markup=False
        )
        shown = [
            *(one.judgement.broken or one.judgement.lacking),
            *(f"told: {text}" for text in one.judgement.told[:1]),
        ]
        for text in shown[:SHOWN_COUNT]:
            console.print(f"    {text:.600}", markup=False, highlight=False, soft_wrap=True)
        if len(shown) > SHOWN_COUNT:
            console.print(f"    and {len(shown) - SHOWN_COUNT} more", highlight=False)
        console.print(f"    repeat: {one.command}", markup=False, highlight=False, soft_wrap=True)


def main() -> int:
    """Run the chosen trials. Returns 1 if a trial is broken, else 0."""
    options = parse_options()
    console = Console()
    console.width = max(console.width, TABLE_WIDTH_MIN)
    console.print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="reput-harm-template-") as directory:
        results = results_of(Path(directory), options, console)
    show(console, results)
    if options.json:
        rows = [_row(one) for one in results]
        options.json.write_text(json.dumps({"seed": options.seed, "trials": rows}, indent=2) + "\n")
    return int(any(map(is_broken, results)))


def _row(one: Result) -> dict[str, object]:
    whole = dataclasses.asdict(one.judgement)
    return dataclasses.asdict(one.trial) | whole | {"verdict": one.judgement.verdict.value, "command": one.command}


if __name__ == "__main__":
    sys.exit(main())
