# SPDX-License-Identifier: Apache-2.0
"""Build the wheels of Reput into dist/: stubs, client, server and Spark connector.

The server's has the compiled kernel, so it is for this kind of machine and this Python; the others are for all.
"""

import argparse
import shutil
import sys
from pathlib import Path

from tools.setup_environment import ROOT, run, uv_command

PACKAGES = ("protos/python", "clients/python", ".", "clients/spark")


def build(target: Path) -> list[Path]:
    """Build all wheels into an empty folder. A failure ends the program. Returns their paths."""
    uv = uv_command()
    shutil.rmtree(target, ignore_errors=True)
    command = [uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(target)]
    for package in PACKAGES:
        run([*command, package], REPUT_REQUIRE_EXTENSIONS="1")
    return sorted(target.glob("*.whl"))


def main() -> None:
    """Build them, and say how they are installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "dist", help="folder, emptied before [default: dist]")
    target = parser.parse_args().target
    for wheel in build(target):
        print(f"{wheel} ({wheel.stat().st_size >> 10} KiB)")
    print(f"install them anywhere: pip install --find-links {target} reput-client   # or reput-server, reput-spark")


if __name__ == "__main__":
    main()
