# SPDX-License-Identifier: Apache-2.0
"""The modules that a new interpreter loads."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.reput_up import environment

ROOT = Path(__file__).parents[2]


def modules_after(code: str) -> set[str]:
    """The modules that a new interpreter has after some code."""
    ending = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ending}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
        timeout=60,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))
