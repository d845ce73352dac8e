# SPDX-License-Identifier: Apache-2.0
"""The example runs as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

from pytest_reput import MemoryReput

from tests.support.patience import LIMIT_S

EXAMPLE = Path(__file__).parents[1] / "examples/shop_sqlalchemy.py"


def test_the_example(reput: MemoryReput, tmp_path: Path) -> None:
    """Two orders are stored, and the order that was rolled back is not."""
    done = subprocess.run(
        [sys.executable, EXAMPLE], env={**os.environ, **reput.environment}, cwd=tmp_path,
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("an order of anna\nan order of ben\n", 0), done.stderr
