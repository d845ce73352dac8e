# SPDX-License-Identifier: Apache-2.0
"""Spark's Python: a check that the interpreter that Spark runs for this session has the packages of the data source.

Without this check Spark reports in some hundred lines that a module is missing, or that no data source has this name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from reput_spark.errors import WrongPython

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = ("reput_spark", "reput_client", "reput")
NEEDED = ("pyarrow", "grpc")
TELL_MISSING = (
    "import importlib.util, sys; print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))"
)
TIMEOUT_S = 60


def check_python(spark: SparkSession) -> None:
    """Raise WrongPython if Spark's Python on this machine lacks a package. With Spark Connect it is not known."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        _check(context.pythonExec, is_shipped=not Path(__file__).exists())


@cache
def _check(program: str, *, is_shipped: bool) -> None:
    """Check each interpreter a single time. Spark itself ships packages in an archive, for example of --py-files."""
    found = shutil.which(program)
    if found is None:
        raise WrongPython(program, "is not there")
    path = Path(found).absolute()
    if path == Path(sys.executable).absolute():
        return
    names = NEEDED if is_shipped else (*OWN, *NEEDED)
    asked = [path, "-c", TELL_MISSING, *names]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=os.sep)
    if done.returncode or done.stdout.split():
        lacks = ", ".join(done.stdout.split()) or "a working standard library"
        raise WrongPython(str(path), f"lacks {lacks}")
