# SPDX-License-Identifier: Apache-2.0
"""The compiled parts of the client, built from the project's own setup.py; builds are kept in .cache.

`make setup` runs this file, so that no test has to wait for the compiler.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[1]
KEPT = PROJECT.parents[1] / ".cache" / "client-speedups"


def part(name: str) -> Any:
    """The compiled module of this name. Skips the test without Cython or a C compiler."""
    pytest.importorskip("Cython")
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    (built,) = kept().rglob(f"{name}*.so")
    spec = spec_from_file_location(f"reput_client.core.speedups.{name}", built)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept() -> Path:
    """The folder of the build for these sources, this Python and this Cython, which is made if it is missing."""
    key = hashlib.sha256(f"{sys.version} {version('cython')}".encode())
    for source in [PROJECT / "setup.py", *sorted(PROJECT.rglob("*.pyx"))]:
        key.update(source.read_bytes())
    folder = KEPT / key.hexdigest()[:20]
    if not folder.exists():
        _build(folder)
    return folder


def _build(folder: Path) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        copy = Path(home, "python")
        shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("*.so", "*.egg-info", "build", "tests"))
        made = tempfile.mkdtemp(dir=KEPT)
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", made]
        subprocess.run(command, cwd=copy, env={**os.environ, "REPUT_CLIENT_SPEEDUPS": "1"}, check=True)
    try:
        Path(made).rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(made)


if __name__ == "__main__":
    kept()
