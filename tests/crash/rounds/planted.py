# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.crash.rounds.planted`: do the rounds catch bugs? Plants bugs in a copy, a bug at a time.

Each plant breaks a rule of copies whose break a test of a single process can't see. Seeds are run until a seed fails.
The command prints the plant, the seed and the promise that broke. Exit code 1 if a plant is not caught or does not
apply.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.rounds import reason_not_to_run

ROOT = Path(__file__).parents[3]
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


PLANTS = (
    Planted(
        "REPLICATED is acknowledged before any follower has synced",
        "services/commitlog/engine/replicate/in_sync_set.py",
        "        return min(own_flushed_physical_offset, *flushed) if self.counted else own_flushed_physical_offset\n",
        "        del flushed\n        return own_flushed_physical_offset\n",
    ),
    Planted(
        "readers of a synchronous master see what it alone has",
        "services/commitlog/engine/write/marks.py",
        "            visible = replicated\n",
        "            visible = committed\n",
    ),
    Planted(
        "two logs are compared by their ends alone",
        "libs/log/common_history.py",
        "    my_parts, their_parts = _parts(mine, my_end), _parts(theirs, their_end)\n",
        "    return min(my_end, their_end)\n",
    ),
    Planted(
        "services do not look at the durability of an answer",
        "libs/requests/durable.py",
        "    while last.is_late:\n",
        "    while False:\n",
        seed=2546,
    ),
)


def seek(plant: Planted, first_seed: int) -> dict[str, Any] | None:
    """Run seeds in a copy with the plant until a seed fails. Returns its violation, None if none fails."""
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        copy, report = Path(scratch) / "copy", Path(scratch) / "report.json"
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        plant.apply(copy)
        environment = {**os.environ, "PYTHONPATH": str(copy), "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        for seed in range(first_seed, first_seed + SEED_COUNT_MAX):
            part = ("--only", "rounds", "--seed", str(seed), "--count", "1", "--jobs", "1", "--json", str(report))
            command = [sys.executable, "-m", "tests.crash", *part]
            subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
            (row,) = json.loads(report.read_text())["parts"]
            if row["violations"]:
                found: dict[str, Any] = row["violations"][0]
                return found
    return None


def main() -> int:
    """Plant all; 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.rounds.planted", description="Do rounds catch bugs?")
    parser.add_argument("--seed", type=int, help="first seed (default: that of the plant)")
    parser.add_argument("--only", default="", help="plants whose name has this text")
    options = parser.parse_args()
    if reason := reason_not_to_run():
        print(f"not run: {reason}", file=sys.stderr)
        return 1
    missed = 0
    for plant in (plant for plant in PLANTS if options.only in plant.name):
        found = seek(plant, plant.seed if options.seed is None else options.seed)
        missed += found is None
        print(f"{plant.name}: {'NOT CAUGHT' if found is None else 'seed ' + str(found['seed'])}", flush=True)
        if found is not None:
            print("\n".join(found["what"].splitlines()[:SHOWN_LINE_COUNT]), flush=True)
    print(f"{missed} plants were not caught")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
