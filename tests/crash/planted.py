# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash.planted`: do the simulations catch bugs? Plants bugs in a copy, a bug at a time.

For each plant the packages are copied into a scratch directory, changed there, and seeds are run until a seed fails,
first the seed that caught the plant before. The command prints the change, the seed and the promise that broke. The
same seeds find nothing in a copy without a change. Exit code 1 if a plant is not caught, does not apply, or the control
finds something.
"""

import argparse
import concurrent.futures
import dataclasses
import difflib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tests.crash import plants
from tests.crash.cluster import plants as cluster_plants
from tests.crash.plant import Plant
from tests.crash.seeds import run_seeds, shortest

ROOT = Path(__file__).parents[2]
PACKAGES = ("libs", "services", "tests")
PLANTS = (*plants.PLANTS, *cluster_plants.PLANTS)
SEED_COUNT_MAX = 3_000
CONTROL_COUNT_MIN = 500
"""Seeds of a part without a plant."""


@dataclass(frozen=True, slots=True)
class Sought:
    """The result of a copy: how many seeds ran, and the seed that failed with its output, None if none failed."""

    seed_count: int
    seed: int | None
    what: str


def seek(root: Path, part: str, plant: Plant | None, seeds: list[range]) -> Sought:
    """Run seeds in a copy, with the plant if it is given, until a seed fails."""
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        copy = Path(scratch)
        for package in PACKAGES:
            shutil.copytree(root / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        if plant is not None:
            plant.apply(copy)
        asked = [f"{each.start}:{each.stop}" for each in seeds]
        command = [sys.executable, "-m", "tests.crash.planted", "--part", part, "--seek", *asked]
        environment = {**os.environ, "PYTHONPATH": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the copy does not run, exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return Sought(**json.loads(done.stdout.splitlines()[-1]))


def seek_here(part: str, seeds: list[range]) -> Sought:
    """Run seeds in this process until a seed fails, and make its steps fewer."""
    count = 0
    for count, seed in enumerate(itertools.chain.from_iterable(seeds), 1):
        if run_seeds(part, range(seed, seed + 1))[2]:
            return Sought(count, seed, shortest(part, seed).partition("\n")[2])
    return Sought(count, None, "")


def seeds_for(plant: Plant, first_seed: int, count: int) -> list[range]:
    """Return the seed that caught a plant before, and then the seeds that are asked for."""
    return [range(plant.seed, plant.seed + 1), range(first_seed, first_seed + count)]


def show(console: Console, plant: Plant, sought: Sought) -> None:
    """Print a plant and the seed that caught it."""
    caught = f"seed {sought.seed}" if sought.seed is not None else "NOT CAUGHT"
    console.rule(f"{plant.name}: {caught} of {plant.part}")
    for change in plant.changes:
        before, after = (text.splitlines() for text in change.texts(ROOT))
        lines = difflib.unified_diff(before, after, change.path, change.path, "", "", 1, "")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    console.print(f"after {sought.seed_count} seeds:\n{sought.what}", markup=False, highlight=False, soft_wrap=True)


def control(part: str, plants_of_part: list[Plant], first_seed: int, count: int, console: Console) -> list[str]:
    """Run the seeds that caught plants, and more, without a plant. Returns the faults, in words."""
    seeds = [*(range(each.seed, each.seed + 1) for each in plants_of_part), range(first_seed, first_seed + count)]
    found = seek(ROOT, part, None, seeds)
    console.rule(f"control: {found.seed_count} seeds of {part} without a plant")
    return [f"the control of {part} fails with seed {found.seed}:\n{found.what}"] if found.seed is not None else []


def main() -> int:
    """Plant all; 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.planted", description="Does the harness catch bugs?")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--count", type=int, default=SEED_COUNT_MAX, help="seeds for each plant at most")
    parser.add_argument("--control", type=int, default=CONTROL_COUNT_MIN, help="seeds without a plant")
    parser.add_argument("--jobs", type=int, default=2, help="plants that are sought at once (default: 2)")
    parser.add_argument("--only", default="", help="plants whose name has this text")
    parser.add_argument("--part", default="", help="plants for this part (sim, cluster)")
    parser.add_argument("--seek", nargs="+", metavar="SEED:END", help="run seeds here until one fails, for the copies")
    options = parser.parse_args()
    if options.seek:
        seeds = [range(*map(int, each.split(":"))) for each in options.seek]
        print(json.dumps(dataclasses.asdict(seek_here(options.part, seeds))))
        return 0
    console = Console()
    chosen = [plant for plant in PLANTS if options.only in plant.name and options.part in ("", plant.part)]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        soughts = [
            (plant, pool.submit(seek, ROOT, plant.part, plant, seeds_for(plant, options.seed, options.count)))
            for plant in chosen
        ]
        for plant, future in soughts:
            try:
                sought = future.result()
            except (ValueError, RuntimeError) as error:
                failures.append(f"{plant.name}: {error}")
                continue
            show(console, plant, sought)
            if sought.seed is None:
                failures.append(f"{plant.name}: not caught by {sought.seed_count} seeds")
    for part in sorted({plant.part for plant in chosen}):
        of_part = [plant for plant in chosen if plant.part == part]
        failures += control(part, of_part, options.seed, options.control, console)
    for failure in failures:
        console.print(failure, style="bold red", markup=False, soft_wrap=True)
    console.print(f"{len(chosen)} plants, {len(failures)} failures")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
