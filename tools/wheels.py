# SPDX-License-Identifier: Apache-2.0
"""Build the wheels of Reput into dist/: stubs, client, server and Spark connector.

The server's wheel contains the compiled kernel and the client's its compiled parts, so both are for this kind of
machine and this Python. The other wheels are for all machines, and so is the client's wheel in the folder `pure`.
Beside the wheels is constraints.txt: the versions of all their dependencies from uv.lock, as the tests have them.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.setup_environment import ROOT, run, uv_command

CONSTRAINTS = "constraints.txt"
CLIENT = "clients/python"
PACKAGES = ("protos/python", CLIENT, ".", "clients/spark")
PURE = "pure"
"""The folder of the client's wheel without compiled parts: beside the other wheel, a pattern would name both."""


def build(target: Path) -> list[Path]:
    """Build all wheels into an empty folder. A failure ends the program. Returns the paths of the wheels for here."""
    uv = uv_command()
    shutil.rmtree(target, ignore_errors=True)
    command = [uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir"]
    run([*command, str(target / PURE), CLIENT], REPUT_CLIENT_SPEEDUPS="0")
    for package in PACKAGES:
        run([*command, str(target), package], REPUT_REQUIRE_EXTENSIONS="1", REPUT_CLIENT_SPEEDUPS="1")
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
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    print(f"the server's and the client's are for Python {version} on machines of this kind")
    print(f"the client's for all machines, without compiled parts, is in {target / PURE}")
    print(f"install it there: {install_line(target, wheels)}")


if __name__ == "__main__":
    main()
