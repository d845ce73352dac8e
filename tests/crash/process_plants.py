# SPDX-License-Identifier: Apache-2.0
"""Plants bugs in a copy, a bug at a time, for the parts of the harness whose cases are processes.

Seeds are run until a seed fails. The command prints the plant, the seed and the promise that broke. Exit code 1 if a
plant is not caught or does not apply.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "libs", "services", "tests")
SEED_COUNT_MAX = 12
SHOWN_LINE_COUNT = 20


@dataclass(frozen=True, slots=True)
class Planted:
    """In the file `path` of the copy `old`, which is there once, becomes `new`."""

    name: str
    path: str
    old: str
    new: str
    seed: int = 1
    """Where to begin: it was caught there before."""

    def apply(self, root: Path) -> None:
        """Change the copy. Raises ValueError if it does not apply."""
        text = (root / self.path).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path} has {text.count(self.old)} times what is to be replaced")
        (root / self.path).write_text(text.replace(self.old, self.new))


def seek(part: str, plant: Planted, first_seed: int) -> dict[str, Any] | None:
    """Run seeds in a copy with the plant until a seed fails. Returns its violation, None if none fails."""
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        copy, report = Path(scratch) / "copy", Path(scratch) / "report.json"
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        plant.apply(copy)
        environment = {**os.environ, "PYTHONPATH": str(copy), "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        for seed in range(first_seed, first_seed + SEED_COUNT_MAX):
            chosen = ("--only", part, "--seed", str(seed), "--count", "1", "--jobs", "1", "--json", str(report))
            command = [sys.executable, "-m", "tests.crash", *chosen]
            subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
            (row,) = json.loads(report.read_text())["parts"]
            if row["violations"]:
                found: dict[str, Any] = row["violations"][0]
                return found
    return None


def main(part: str, plants: Sequence[Planted], *, reason: str = "") -> int:
    """Plant all; 1 if anything is not as it should be. With a `reason` not to run, say it."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.crash.{part}.planted", description="Are bugs caught?")
    parser.add_argument("--seed", type=int, help="first seed (default: that of the plant)")
    parser.add_argument("--only", default="", help="plants whose name has this text")
    options = parser.parse_args()
    if reason:
        print(f"not run: {reason}", file=sys.stderr)
        return 1
    missed = 0
    for plant in (plant for plant in plants if options.only in plant.name):
        found = seek(part, plant, plant.seed if options.seed is None else options.seed)
        missed += found is None
        print(f"{plant.name}: {'NOT CAUGHT' if found is None else 'seed ' + str(found['seed'])}", flush=True)
        if found is not None:
            print("\n".join(found["what"].splitlines()[:SHOWN_LINE_COUNT]), flush=True)
    print(f"{missed} plants were not caught")
    return int(bool(missed))
