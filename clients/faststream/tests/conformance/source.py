# SPDX-License-Identifier: Apache-2.0
"""FastStream's own tests, which are not in its wheel: fetched below build/conformance, with the classes of Reput."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

from tools.setup_environment import ROOT, uv_command

REPOSITORY = "https://github.com/ag2ai/faststream"
SOURCE = "FASTSTREAM_SOURCE"
"""Variable for a git repository of FastStream that is there already. Its HEAD is taken."""
BUILD = ROOT / "build" / "conformance" / "faststream"
CLASSES = Path(__file__).parent / "classes"
SETTINGS = """[pytest]
asyncio_mode = auto
python_files = brokers.py asyncapi.py
markers =
    all: each test of FastStream
    slow: takes more than a second
    flaky: is repeated by FastStream's own runs
    connected: needs the broker
"""
PACKAGES = ("annotated-doc", "dirty-equals", "fastapi")
"""Packages that the tests import, beside the lock's."""
TIMEOUT_S = 1500


def prepare() -> tuple[Path, str]:
    """Return the folder of the tests, and the revision that they have."""
    repository, revision = _repository()
    target = BUILD / "run"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", "HEAD", "tests"], check=True, capture_output=True, timeout=TIMEOUT_S
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as file:
        file.extractall(target, filter="data")
    shutil.copytree(CLASSES, target / "tests" / "brokers" / "reput")
    (target / "tests" / "brokers" / "reput" / "__init__.py").touch()
    (target / "pytest.ini").write_text(SETTINGS)
    packages = BUILD / "packages"
    if not packages.exists():
        command = [uv_command(), "pip", "install", "--quiet", "--python", sys.executable, "--target", str(packages)]
        subprocess.run([*command, "--no-deps", *PACKAGES], check=True, timeout=TIMEOUT_S)
    return target, revision


def run(target: Path) -> tuple[Path, str]:
    """Run the classes of Reput, and return the report as JUnit writes it and the output."""
    report = target / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120"]
    done = subprocess.run(
        [*command, f"--junit-xml={report}", "tests/brokers/reput"],
        cwd=target,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(target), str(BUILD / "packages")])},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return report, done.stdout + done.stderr


def _repository() -> tuple[Path, str]:
    """Return a git repository with the tests, by default of the installed version, and its revision."""
    if given := os.environ.get(SOURCE):
        head = ["git", "-C", given, "log", "-1", "--format=%h of %cs"]
        return Path(given), subprocess.check_output(head, text=True, timeout=TIMEOUT_S).strip()
    tag = version("faststream")
    clone = BUILD / tag
    if not clone.exists():
        command = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, REPOSITORY, str(clone)]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return clone, tag
