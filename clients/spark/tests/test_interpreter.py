# SPDX-License-Identifier: Apache-2.0
"""Spark's Python: a single line if it lacks a package, or does not exist."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reput_spark.errors import WrongPython
from reput_spark.interpreter import check_python


def session(program: str) -> Any:
    """Return the part of a session that the check uses: the interpreter that it runs."""
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=program))


def test_a_python_without_the_packages(tmp_path: Path) -> None:
    """The error has its name, the missing packages, and the remedy."""
    venv.create(tmp_path, with_pip=False)
    python = tmp_path / "bin" / "python"
    with pytest.raises(WrongPython) as refused:
        check_python(session(str(python)))
    text = str(refused.value)
    assert text.startswith(f"Spark's Python, {python}, lacks reput_spark, reput_client, reput, pyarrow, grpc; ")
    assert f"set PYSPARK_PYTHON={sys.executable}" in text
    assert "\n" not in text


def test_a_python_that_is_not_there() -> None:
    """The same words."""
    with pytest.raises(WrongPython, match="no-such-python, is not there; set PYSPARK_PYTHON="):
        check_python(session("no-such-python"))


def test_a_python_that_has_all() -> None:
    """This Python, also under another name. A session of Spark Connect, whose Python is not known."""
    check_python(session(sys.executable))
    check_python(session(str(Path(sys.executable).parent / ".." / "bin" / "python")))
    check_python(SimpleNamespace())
