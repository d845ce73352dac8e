# SPDX-License-Identifier: Apache-2.0
"""Build the wheels of Reput into dist/: stubs, client, server and Spark connector.

The server's wheel contains the compiled kernel and the client's its compiled parts, so both are for this kind of
machine, and there is one for each Python that is named. The other wheels are for all machines, and so is the client's
wheel in the folder `pure`.
Beside the wheels are constraints.txt, the versions of all their dependencies from uv.lock, as the tests have them, and
sbom.cdx.json, the same as a bill of materials in CycloneDX' format.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.setup_environment import ROOT, run, uv_command

CONSTRAINTS = "constraints.txt"
BILL = "sbom.cdx.json"
CLIENT = "clients/python"
COMPILED = (CLIENT, ".")
PACKAGES = ("protos/python", *COMPILED, "clients/spark")
PURE = "pure"
"""The folder of the client's wheel without compiled parts: beside the other wheel, a pattern would name both."""


def build(target: Path, pythons: Sequence[str] = (sys.executable,)) -> list[Path]:
    """Build all wheels into an empty folder, the compiled ones for each Python. A failure ends the program.

    Returns the paths of the wheels outside of `pure`.
    """
    uv = uv_command()
    shutil.rmtree(target, ignore_errors=True)
    command = [uv, "build", "--quiet", "--wheel", "--python"]
    run([*command, pythons[0], "--out-dir", str(target / PURE), CLIENT], REPUT_CLIENT_SPEEDUPS="0")
    for python in pythons:
        for package in PACKAGES if python == pythons[0] else COMPILED:
            compiled = {"REPUT_REQUIRE_EXTENSIONS": "1", "REPUT_CLIENT_SPEEDUPS": "1"}
            run([*command, python, "--out-dir", str(target), package], **compiled)
    for name, options in ((CONSTRAINTS, ["--no-emit-workspace", "--no-hashes"]), (BILL, ["--format=cyclonedx1.5"])):
        chosen = ["--frozen", "--all-packages", "--all-extras", "--no-default-groups", *options]
        run([uv, "export", "--quiet", *chosen, "--output-file", str(target / name)])
    return sorted(target.glob("*.whl"))


def install_line(target: Path, wheels: Sequence[Path]) -> str:
    """Return the command that installs the server. It names the file of each wheel, so no package index replaces it."""
    ours = [str(wheel) for wheel in wheels if not wheel.name.startswith("reput_spark-")]
    return " ".join(["pip install -c", str(target / CONSTRAINTS), *ours])


def main() -> None:
    """Build the wheels, and print how to install them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "dist", help="folder, emptied before [default: dist]")
    parser.add_argument(
        "pythons", nargs="*", default=[sys.executable], help="commands or versions [default: this Python]"
    )
    args = parser.parse_args()
    target, pythons = args.target, args.pythons
    wheels = build(target, pythons)
    for wheel in wheels:
        print(f"{wheel} ({wheel.stat().st_size >> 10} KiB)")
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    named = version if pythons == [sys.executable] else ", ".join(pythons)
    print(f"the server's and the client's are for {named} on machines of this kind")
    print(f"the client's for all machines, without compiled parts, is in {target / PURE}")
    here = f"-cp{sys.version_info.major}{sys.version_info.minor}-"
    print(
        f"install it there: {install_line(target, [one for one in wheels if '-py3-' in one.name or here in one.name])}"
    )


if __name__ == "__main__":
    main()
