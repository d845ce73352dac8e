# SPDX-License-Identifier: Apache-2.0
"""The table language × feature: fetches and builds the official clients, and takes each through all features."""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.gateway.drivers import BUILD, LANGUAGES, Command, Missing, running
from tests.gateway.features import FEATURES, wrong_with
from tests.gateway.splitting import changing
from tests.gateway.stage import Stage, stage
from tests.support.surroundings import forget_surroundings

Results = dict[tuple[str, str], str]
"""The complaints by language and feature, "" for a feature that works."""
LACKING = "the client has no such thing"
MARKS = {"": "yes", LACKING: "-"}


async def run_all(
    commands: Mapping[str, Command],
    features: Sequence[str],
    console: Console,
    *,
    at_once: int,
    shard_count: int,
    with_changes: bool,
) -> Results:
    """Take each driver through all features, several at once, because most features wait most of the time.

    `with_changes`: queues are split, moved and merged meanwhile.
    """
    results: Results = {}
    room = asyncio.Semaphore(at_once)

    async def run_one(there: Stage, language: str, command: Command, feature: str) -> None:
        if any(part in feature for part in command.lacks):
            results[language, feature] = LACKING
            return
        async with room:
            began_s = time.monotonic()
            async with running(command, there.authorities, BUILD / f"{language}.log") as driver:
                wrong = results[language, feature] = await wrong_with(feature, driver, there, command)
            took_s = time.monotonic() - began_s
            mark = "yes" if not wrong else f"no: {wrong}"
            console.print(f"{language}, {feature}: {mark} ({took_s:.0f} s)", markup=False, soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="reput-gateway-") as directory:
        async with stage(Path(directory), shard_count) as there, contextlib.AsyncExitStack() as stack:
            counts = await stack.enter_async_context(changing(there.shards)) if with_changes else {}
            async with asyncio.TaskGroup() as tasks:
                for language, command in commands.items():
                    for feature in features:
                        tasks.create_task(run_one(there, language, command, feature))
            for kind, count in counts.items():
                console.print(f"{count} {kind} of queues meanwhile")
    return results


def tell(results: Results, languages: Sequence[str], features: Sequence[str], console: Console) -> None:
    """Print the table, and write it for people to read."""
    table = Table("feature", *languages)
    lines = [f"| feature | {' | '.join(languages)} |", f"|---|{'---|' * len(languages)}"]
    for feature in features:
        row = [MARKS.get(results[language, feature], "no") for language in languages]
        table.add_row(feature, *row)
        lines.append(f"| {feature} | {' | '.join(row)} |")
    console.print(table)
    (BUILD / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def built(wanted: Sequence[str], console: Console) -> dict[str, Command]:
    """Build the drivers that this machine can build, and print the drivers that it can't build."""
    commands = {}
    for language in wanted:
        try:
            with console.status(f"fetching the client for {language}"):
                commands[language] = LANGUAGES[language]()
        except Missing as lacking:
            console.print(f"{language} is left out: this machine has no {lacking}")
    return commands


def main() -> None:
    """Exit with 1 if a feature does not work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", action="append", choices=LANGUAGES, help="only this one; may be repeated")
    parser.add_argument("--only", default="", help="only features with this in their name")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="drivers that run at once (default: 4)")
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="shards behind the gateways (default: 1)")
    parser.add_argument("--changes", action="store_true", help="split, move and merge queues meanwhile")
    arguments = parser.parse_args()
    if arguments.changes and arguments.shards == 1:
        parser.error("--changes needs several shards")
    forget_surroundings()
    console = Console(file=sys.stdout)
    BUILD.mkdir(parents=True, exist_ok=True)
    features = [feature for feature in FEATURES if arguments.only in feature]
    commands = built(arguments.language or list(LANGUAGES), console)
    options = {"at_once": arguments.at_once, "shard_count": arguments.shards, "with_changes": arguments.changes}
    results = asyncio.run(run_all(commands, features, console, **options))
    tell(results, list(commands), features, console)
    if any(wrong not in MARKS for wrong in results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
