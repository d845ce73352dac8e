# SPDX-License-Identifier: Apache-2.0
"""Make the files that bring the Spark connector to clusters without it.

`python -m tools.spark_dist [DIR]` writes two files; docs/spark.md describes their use.
- reput_spark-VERSION-py-files.zip, for `--py-files`: the connector, the Python client and the stubs of the API.
- reput_spark-VERSION-environment-pyX.Y.tar.gz, for `--archives`: a virtual environment with all packages that executors
  need, in the locked versions. It runs on machines of this kind with the same Python at the same path.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from rich.console import Console

from tools.setup_environment import ROOT, uv_command

PROJECT = ROOT / "clients" / "spark"
SOURCES = (PROJECT / "src", ROOT / "clients" / "python" / "src", ROOT / "protos" / "python" / "src")
OWN = ("reput-client", "reput-protos")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def version() -> str:
    """Return the connector's version."""
    found: str = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    return found


def py_files(directory: Path) -> Path:
    """Write the zip archive of the packages."""
    path = directory / f"reput_spark-{version()}-py-files.zip"
    with tempfile.TemporaryDirectory(prefix="reput-spark-") as made:
        for source in SOURCES:
            shutil.copytree(source, made, ignore=_no_python, dirs_exist_ok=True)
        shutil.make_archive(str(path.with_suffix("")), "zip", made)  # with directories, or `reput` can't be imported
    return path


def _no_python(directory: str, names: list[str]) -> list[str]:
    """Return the names in a directory that are not shipped."""
    return [
        name
        for name in names
        if name.endswith((".egg-info", "__pycache__")) or not (name.endswith(".py") or Path(directory, name).is_dir())
    ]


def environment(directory: Path) -> Path:
    """Write the archive of an environment, whose root is the root of the archive."""
    path = directory / f"reput_spark-{version()}-environment-py{PYTHON}.tar.gz"
    with tempfile.TemporaryDirectory(prefix="reput-spark-") as made:
        install(Path(made))
        with tarfile.open(path, "w:gz", compresslevel=6) as archive:
            archive.add(made, arcname=".")
    return path


def install(directory: Path, *, has_connector: bool = True) -> None:
    """Make a virtual environment of the locked versions, which may be moved. The connector is optional."""
    uv, settings = uv_command(), {"UV_PROJECT_ENVIRONMENT": str(directory), "UV_PYTHON_DOWNLOADS": "never"}
    without = ["--no-install-project", *(part for name in OWN for part in ("--no-install-package", name))]
    chosen = [] if has_connector else without
    for command in (
        ["venv", "--relocatable", "--clear", "--python", sys.executable, str(directory)],
        ["sync", "--frozen", "--no-dev", "--no-editable", "--link-mode", "copy", *chosen],
    ):
        subprocess.run([uv, "--quiet", *command], cwd=PROJECT, env=os.environ | settings, check=True)


def main() -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="python -m tools.spark_dist", description=__doc__.partition("\n")[0])
    parser.add_argument("directory", nargs="?", type=Path, default=PROJECT / "dist", help="default: %(default)s")
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    console = Console()
    for make in (py_files, environment):
        path = make(directory)
        console.print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
