# SPDX-License-Identifier: Apache-2.0
"""Run the Spark connector's tests with each version of PySpark that it supports, each in its own environment.

`python -m tools.spark_matrix [VERSION ...]`. Environments are kept below .cache/spark-matrix, because PySpark is half a
gigabyte. Exit code 1 if a version fails.
"""

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".cache" / "spark-matrix"
VERSIONS = ("4.1", "4.2", "4.3")
PACKAGES = ("./protos/python", "./clients/python", "./clients/spark", "pytest>=9,<10", "pytest-timeout>=2.4,<3")


def prepared(version: str) -> Path:
    """Return the Python of a version's environment, made if it is missing. Our packages are always installed again."""
    directory = ENVIRONMENTS / version
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True, clear=True)
        pip(python, f"pyspark=={version}.*")
    pip(python, *PACKAGES)
    pip(python, "--force-reinstall", "--no-deps", *PACKAGES[:3])
    return python


def pip(python: Path, *arguments: str) -> None:
    """Install packages. Raises CalledProcessError."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)


def tested(python: Path, console: Console) -> tuple[bool, str]:
    """Run the tests. Returns whether they passed, and pytest's closing line."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=ROOT / "clients" / "spark", capture_output=True, text=True, check=False)
    if done.returncode:
        console.print(done.stdout[-4000:], markup=False, highlight=False)
    lines = [line for line in done.stdout.splitlines() if " passed" in line or " failed" in line or " error" in line]
    return done.returncode == 0, lines[-1] if lines else f"exit code {done.returncode}"


def main() -> int:
    """Test all versions and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), metavar="VERSION", help="default: %(default)s")
    console = Console()
    table = Table("PySpark", "outcome", "tests")
    is_good = True
    for version in parser.parse_args().versions:
        console.print(f"PySpark {version}: preparing")
        python = prepared(version)
        console.print(f"PySpark {version}: testing")
        passed, line = tested(python, console)
        is_good = is_good and passed
        table.add_row(version, "passed" if passed else "FAILED", line)
    console.print(table)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
