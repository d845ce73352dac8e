# SPDX-License-Identifier: Apache-2.0
"""Build the wheels of Reput into dist/: stubs, client, server, Spark connector and plug-in of pytest.

The server's wheel contains the compiled kernel and the client's its compiled parts, so both are for this kind of
machine, and there is one for each Python that is named. The other wheels are for all machines, and so is the client's
wheel in the folder `pure`.
Beside the wheels is a file for each program, such as locked-server.txt, with which pip installs it: its wheels and
dependencies by version and digest, so that pip takes no other file of the same name. constraints.txt has the versions
of all dependencies from uv.lock, as the tests have them, and sbom.cdx.json is the same as a bill of materials,
in CycloneDX' format.
"""

import argparse
import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.setup_environment import ROOT, run, uv_command

CONSTRAINTS = "constraints.txt"
BILL = "sbom.cdx.json"
CLIENT = "clients/python"
COMPILED = (CLIENT, ".")
BESIDE = ("spark", "pytest", "kombu", "faststream", "outbox")
"""The packages beside the client, by their folders in `clients`."""
PACKAGES = ("protos/python", *COMPILED, *(f"clients/{name}" for name in BESIDE))
LOCKED = {
    "server": (["--package", "reput-server"], ("reput-server", "reput-client", "reput-protos")),
    "client": (["--package", "reput-client"], ("reput-client", "reput-protos")),
    "pytest": (["--package", "pytest-reput"], ("pytest-reput", "reput-server", "reput-client", "reput-protos")),
    "kombu": (["--package", "kombu-reput", "--all-extras"], ("kombu-reput", "reput-client", "reput-protos")),
    "outbox": (["--package", "reput-outbox", "--all-extras"], ("reput-outbox", "reput-client", "reput-protos")),
    "spark": (["--project", "clients/spark"], ("reput-spark", "reput-client", "reput-protos")),
}
"""The lock of each program, in uv's words, and the packages of Reput that it consists of."""
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
    wheels = sorted(target.glob("*.whl"))
    for name, (locked, packages) in LOCKED.items():
        file = target / f"locked-{name}.txt"
        chosen = [*locked, "--frozen", "--no-emit-local", "--no-default-groups", "--no-header", "--no-annotate"]
        run([uv, "export", "--quiet", *chosen, "--output-file", str(file)])
        add_ours(file, packages, wheels)
    return wheels


def add_ours(file: Path, packages: Sequence[str], wheels: Sequence[Path]) -> None:
    """Put our wheels before the dependencies of a file with which pip installs a program, all with their digests.

    pip refuses a file without one of these digests, whatever an index has.
    """
    ours = []
    for package in packages:
        own = [one for one in wheels if one.name.startswith(f"{package.replace('-', '_')}-")]
        digests = [f"    --hash=sha256:{hashlib.sha256(one.read_bytes()).hexdigest()}" for one in own]
        ours.append(" \\\n".join([f"{package}=={own[0].name.split('-')[1]}", *digests]))
    head = f"# pip install -r {file.name}, also from another folder: the wheels are beside this file"
    file.write_text("\n".join([head, "--find-links .", *ours, file.read_text()]))


def install_line(target: Path) -> str:
    """Return the command that installs the server. Each file has a digest, so no package of an index replaces it."""
    return f"pip install -r {target / 'locked-server.txt'}"


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
    print(f"install it there: {install_line(target)}")


if __name__ == "__main__":
    main()
