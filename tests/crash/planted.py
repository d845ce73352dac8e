# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash.planted`: does the simulation catch bugs? Plants some in a copy, one at a time.

For each plant the packages are copied into a scratch directory, changed there, and seeds are run until one fails. What
is printed is the change, the seed and the promise that broke. The same seeds find nothing in a copy without a change.
Exit code 1 if a plant is not caught, does not apply, or the control finds something.
"""

import argparse
import concurrent.futures
import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tests.crash.plants import PLANTS, Plant
from tests.crash.seeds import run_seeds, shortest

ROOT = Path(__file__).parents[2]
PACKAGES = ("libs", "services", "tests")
SEED_COUNT_MAX = 3_000
CONTROL_COUNT_MIN = 500


@dataclass(frozen=True, slots=True)
class Sought:
    """What a copy did: how many seeds ran, and the one that failed with what it showed; None if none did."""

    seed_count: int
    seed: int | None
    what: str


def planted_text(plant: Plant, root: Path) -> tuple[str, str]:
    """The file before and after; raises ValueError if the plant does not apply."""
    before = (root / plant.path).read_text()
    if before.count(plant.old) != 1:
        raise ValueError(f"{plant.path} has {before.count(plant.old)} times what is to be replaced")
    return before, before.replace(plant.old, plant.new)


def seek(root: Path, plant: Plant | None, first_seed: int, count: int) -> Sought:
    """Run seeds in a copy, with the plant if there is one, until one fails."""
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        copy = Path(scratch)
        for package in PACKAGES:
            shutil.copytree(root / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        if plant is not None:
            (copy / plant.path).write_text(planted_text(plant, root)[1])
        command = [sys.executable, "-m", "tests.crash.planted", "--seek", f"{first_seed}:{count}"]
        environment = {**os.environ, "PYTHONPATH": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the copy does not run, exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return Sought(**json.loads(done.stdout.splitlines()[-1]))


def seek_here(part: str, first_seed: int, count: int) -> Sought:
    """Run seeds in this process until one fails, and make its steps fewer."""
    for seed in range(first_seed, first_seed + count):
        if run_seeds(part, range(seed, seed + 1))[2]:
            return Sought(seed - first_seed + 1, seed, shortest(part, seed).partition("\n")[2])
    return Sought(count, None, "")


def show(console: Console, plant: Plant, sought: Sought) -> None:
    """Print what was planted and what caught it."""
    before, after = planted_text(plant, ROOT)
    console.rule(f"{plant.name}: " + (f"seed {sought.seed}" if sought.seed is not None else "NOT CAUGHT"))
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), plant.path, plant.path, "", "", 1, "")
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    console.print(f"after {sought.seed_count} seeds:\n{sought.what}", markup=False, highlight=False, soft_wrap=True)


def main() -> int:
    """Plant all; 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.planted", description="Does the harness catch bugs?")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--count", type=int, default=SEED_COUNT_MAX, help="seeds for each plant at most")
    parser.add_argument("--jobs", type=int, default=2, help="plants that are sought at once (default: 2)")
    parser.add_argument("--only", default="", help="plants whose name has this text")
    parser.add_argument("--seek", metavar="SEED:COUNT", help="run seeds here until one fails, for the copies")
    options = parser.parse_args()
    if options.seek:
        first_seed, count = map(int, options.seek.split(":"))
        found = seek_here(first_seed, count)
        print(json.dumps({"seed_count": found.seed_count, "seed": found.seed, "what": found.what}))
        return 0
    console = Console()
    plants = [plant for plant in PLANTS if options.only in plant.name]
    failures = []
    seed_count = CONTROL_COUNT_MIN
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        soughts = [(plant, pool.submit(seek, ROOT, plant, options.seed, options.count)) for plant in plants]
        for plant, future in soughts:
            try:
                sought = future.result()
            except (ValueError, RuntimeError) as error:
                failures.append(f"{plant.name}: {error}")
                continue
            show(console, plant, sought)
            seed_count = max(seed_count, sought.seed_count)
            if sought.seed is None:
                failures.append(f"{plant.name}: not caught by {sought.seed_count} seeds")
    control = seek(ROOT, None, options.seed, seed_count)
    console.rule(f"control: {control.seed_count} seeds without a plant")
    if control.seed is not None:
        failures.append(f"the control fails with seed {control.seed}:\n{control.what}")
    for failure in failures:
        console.print(failure, style="bold red", markup=False, soft_wrap=True)
    console.print(f"{len(plants)} plants, {len(failures)} failures")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
