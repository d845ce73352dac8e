# SPDX-License-Identifier: Apache-2.0
"""Build the wheels of Reput into dist/: stubs, client, server and Spark connector.

The server's wheel contains the compiled kernel, so it is for this kind of machine and this Python. The other wheels are
for all machines. Beside the wheels is constraints.txt: the versions of all their dependencies from uv.lock, which are
also the versions of the tests.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.setup_environment import ROOT, run, uv_command

CONSTRAINTS = "constraints.txt"
PACKAGES = ("protos/python", "clients/python", ".", "clients/spark")


def build(target: Path) -> list[Path]:
    """Build all wheels into an empty folder. A failure ends the program. Returns their paths."""
    uv = uv_command()
    shutil.rmtree(target, ignore_errors=True)
    command = [uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(target)]
    for package in PACKAGES:
        run([*command, package], REPUT_REQUIRE_EXTENSIONS="1")
    run(
        [
            uv,
            "export",
            "--quiet",
            "--frozen",
            "--all-packages",
            "--all-extras",
            "--no-default-groups",
            "--no-emit-workspace",
            "--no-hashes",
            "--output-file",
            str(target / CONSTRAINTS),
        ]
    )
    return sorted(target.glob("*.whl"))


def install_line(target: Path, wheels: Sequence[Path]) -> str:
    """Return the command that installs the server. It names the file of each wheel, so no package index replaces it."""
    ours = [str(wheel) for wheel in wheels if not wheel.name.startswith("reput_spark-")]
    return " ".join(["pip install -c", str(target / CONSTRAINTS), *ours])


def main() -> None:
    """Build the wheels, and print how to install them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "dist", help="folder, emptied before [default: dist]")
    target = parser.parse_args().target
    wheels = build(target)
    for wheel in wheels:
        print(f"{wheel} ({wheel.stat().st_size >> 10} KiB)")
    print(f"the server's is for Python {sys.version_info.major}.{sys.version_info.minor} on machines of this kind")
    print(f"install it there: {install_line(target, wheels)}")


if __name__ == "__main__":
    main()
