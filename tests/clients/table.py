# SPDX-License-Identifier: Apache-2.0
"""The table language × case: builds the clients, starts the stages, and takes each driver through all cases."""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.clients import drivers, stages
from tests.clients.cases import Case, complaint, filled_in, load, request_of
from tests.clients.drivers import BUILD, LANGUAGES, Driver, Missing
from tests.clients.stages import CALM_S, Stage
from tests.support.patience import LIMIT_S
from tests.support.surroundings import forget_surroundings

Results = dict[tuple[str, str], str]
"""The complaints by language and case, "" for a case that passed."""


async def run_case(case: Case, driver: Driver, stage: Stage, *, is_direct: bool) -> str:
    """Take a driver through a case, `is_direct` without the gateway. Return the complaint, "" if the case passed."""
    name = uuid.uuid4().hex[:12]
    names: dict[str, Any] = {**stage.names, "topic": f"topic-{name}", "group": f"group-{name}"}
    reached = stage.without_gateway if is_direct else dict
    await driver.ask(reached({"do": "connect", **stage.connection}))
    for number, raw in enumerate(case.steps):
        step = reached(filled_in(raw, names))
        try:
            wrong = await (_check(step, stage) if "check" in step else _step(step, driver, stage, names))
        except (AssertionError, TimeoutError) as error:
            wrong = f"{error!r}"
        if wrong:
            return f"step {number + 1} ({step.get('do', 'check')}): {wrong}"
    return ""


async def _step(step: Mapping[str, Any], driver: Driver, stage: Stage, names: dict[str, Any]) -> str:
    """Let the driver make a step, and repeat it if it is right only eventually. Keep the answer if the step says so."""
    harm = asyncio.create_task(_meanwhile(step, stage))
    end_s = time.monotonic() + (LIMIT_S if step.get("eventually") else 0.0)
    while True:
        answer = await driver.ask(request_of(step))
        wrong = complaint(step, answer)
        if not wrong or time.monotonic() >= end_s:
            break
        await asyncio.sleep(0.05)
    await harm
    if "keep" in step and "ok" in answer:
        names[step["keep"]] = answer["ok"]
    return wrong


async def _meanwhile(step: Mapping[str, Any], stage: Stage) -> None:
    if "meanwhile" in step:
        await asyncio.sleep(CALM_S)
        await stage.harms[step["meanwhile"]](step)


async def _check(step: Mapping[str, Any], stage: Stage) -> str:
    """Check that all numbered messages are stored, each at least once, and that their first copies are in order."""
    found = await stage.bodies(step["topic"], step["queue_id"], step["count"])
    numbered = {"numbered": {"prefix": step["prefix"], "count": step["count"], "may_repeat": True}}
    return complaint(numbered, {"ok": {"bodies": found}})


async def run_all(
    languages: Mapping[str, Sequence[str]], cases: Sequence[Case], console: Console, *, is_direct: bool
) -> Results:
    """Run all cases of all languages, with the stages side by side. The stages start first, because a start blocks."""
    results: Results = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("cases", total=sum(name in case.languages for case in cases for name in languages))

        def begin(language: str, case: Case) -> None:
            progress.update(bar, description=f"{language}: {case.name[:40]}", advance=1)

        async with contextlib.AsyncExitStack() as stack:
            running = []
            for name in dict.fromkeys(case.stage for case in cases):
                here = [case for case in cases if case.stage == name]
                if lacking := stages.missing(name):
                    skipped = f"skipped: needs {lacking}"
                    asked = [(language, case) for language in languages for case in here if language in case.languages]
                    results |= {(language, case.name): skipped for language, case in asked}
                else:
                    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reput-clients-")))
                    stage = await stack.enter_async_context(stages.STAGES[name](directory))
                    running.append(_run_stage(stage, languages, here, begin, is_direct=is_direct))
            for found in await asyncio.gather(*running):
                results |= found
    return results


async def _run_stage(
    stage: Stage,
    languages: Mapping[str, Sequence[str]],
    cases: Sequence[Case],
    begin: Callable[[str, Case], None],
    *,
    is_direct: bool,
) -> Results:
    """Run the cases of a stage, language by language."""
    results: Results = {}
    for language, command in languages.items():
        async with drivers.running(command) as driver:
            for case in (case for case in cases if language in case.languages):
                begin(language, case)
                results[language, case.name] = await run_case(case, driver, stage, is_direct=is_direct)
    return results


def tell(results: Results, languages: Sequence[str], cases: Sequence[Case], console: Console) -> None:
    """Print the table and the complaints, and write the table for people to read."""
    marks = {key: "·" if wrong.startswith("skipped") else "no" if wrong else "yes" for key, wrong in results.items()}
    table = Table("case", *languages)
    lines = [f"| case | {' | '.join(languages)} |", f"|---|{'---|' * len(languages)}"]
    for case in cases:
        row = [marks.get((language, case.name), "–") for language in languages]
        table.add_row(case.name, *row)
        lines.append(f"| {case.name} | {' | '.join(row)} |")
    console.print(table)
    for (language, name), wrong in results.items():
        if wrong:
            console.print(f"{language}, {name}:\n  {wrong}", markup=False, soft_wrap=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def built(wanted: Sequence[str], console: Console) -> dict[str, Sequence[str]]:
    """Build the drivers that this machine can build, and print the drivers that it can't build."""
    commands = {}
    for language in wanted:
        try:
            with console.status(f"building the client of {language}"):
                commands[language] = LANGUAGES[language]()
        except Missing as lacking:
            console.print(f"{language} is left out: this machine has no {lacking}")
    return commands


def main() -> None:
    """Exit with 1 if a case fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", action="append", choices=LANGUAGES, help="only this one; may be repeated")
    parser.add_argument("--only", default="", help="only cases, or stages, with this in their name")
    parser.add_argument("--direct", action="store_true", help="call the services without the gateway between")
    arguments = parser.parse_args()
    forget_surroundings()
    console = Console(file=sys.stdout)
    cases = [case for case in load() if arguments.only in case.name or arguments.only in case.stage]
    languages = built(arguments.language or list(LANGUAGES), console)
    if arguments.language and len(languages) < len(arguments.language):
        raise SystemExit("not all of the languages that were asked for can be run here")
    if not cases:
        raise SystemExit(f"no case and no stage has {arguments.only!r} in its name")
    results = asyncio.run(run_all(languages, cases, console, is_direct=arguments.direct))
    tell(results, list(languages), cases, console)
    if any(wrong and not wrong.startswith("skipped") for wrong in results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
