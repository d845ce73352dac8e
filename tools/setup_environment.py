# SPDX-License-Identifier: Apache-2.0
"""`make setup`: check the requirements of the machine, make .venv from uv.lock, compile the kernel.

It also compiles what the first tests would wait for: the Python client's optional parts, and the modules of the tests.
Needs only the standard library: it runs before anything is installed. uv itself is installed into .cache/uv, so the
machine need not have it. All missing requirements are named, with the way to install them, before any work begins.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV_VERSION = "0.13.8"
PYTHON_MIN = (3, 11)
JAVA_MIN = 17


def missing() -> list[str]:
    """Return a line for each missing requirement."""
    lines = []
    if sys.version_info < PYTHON_MIN:
        lines.append(f"Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or newer: this is {sys.version.split()[0]}")
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        lines.append("a C compiler (Debian: apt-get install gcc): none of cc, gcc, clang is on PATH")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        lines.append(f"Python's C headers (Debian: apt-get install python3-dev): no Python.h for {sys.executable}")
    java = java_version()
    if java is None:
        lines.append(
            f"Java {JAVA_MIN} or newer, for Spark (Debian: apt-get install openjdk-17-jre-headless): no java found"
        )
    elif java < JAVA_MIN:
        lines.append(f"Java {JAVA_MIN} or newer, for Spark: java is version {java}")
    return lines


def java_version() -> int | None:
    """Return the major version of the java that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        return None
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', output)
    return int(found.group(1)) if found else None


def uv_command() -> str:
    """Return the path of uv in the pinned version, installed on first use."""
    folder = ROOT / ".cache" / "uv"
    command = folder / "bin" / "uv"
    if not command.exists() or UV_VERSION not in subprocess.check_output([command, "--version"], text=True):
        print(f"installing uv {UV_VERSION} into .cache/uv", flush=True)
        venv.create(folder, with_pip=True)
        run([str(folder / "bin" / "pip"), "install", "--quiet", f"uv=={UV_VERSION}"])
    return str(command)


def run(command: list[str], **environment: str) -> None:
    """Run a step. A failing step ends the set-up with its own output."""
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"setup: `{' '.join(command)}` failed with exit code {done.returncode}")


def collecting(python: str) -> subprocess.Popen[bytes]:
    """Begin to collect the tests, which leaves the bytecode of their modules in .cache/bytecode.

    Otherwise each process of the first `make test` would compile them. That run shows the errors.
    """
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")}
    command = [python, "-m", "pytest", "--collect-only", "-qq", "tests/unit", "clients/python/tests"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | bytecode, stdout=quiet, stderr=quiet)


def main() -> None:
    """Check the machine, install the packages, compile."""
    lines = missing()
    if lines:
        raise SystemExit("setup: this machine lacks\n" + "\n".join(f"  - {line}" for line in lines))
    uv = uv_command()
    print("installing the locked dependencies into .venv (the first time downloads Spark, about 450 MB)", flush=True)
    # the kernel is compiled in place below: uv may take the server's own build from its cache, without a compiler run
    run(
        [uv, "sync", "--frozen", "--quiet", "--python", sys.executable],
        REPUT_NO_EXTENSIONS="1",
        UV_PYTHON_DOWNLOADS="never",
    )
    print("compiling the kernel", flush=True)
    python = str(ROOT / ".venv" / "bin" / "python")
    parallel = str(os.cpu_count() or 1)
    run([python, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", parallel], REPUT_REQUIRE_EXTENSIONS="1")
    print("compiling the Python client's optional parts, and the modules of the tests", flush=True)
    with collecting(python):
        run([python, "clients/python/tests/compiled.py"])
    (ROOT / ".venv" / ".ready").touch()
    print("ready: `make demo`, `make test`, or .venv/bin/reput --help", flush=True)


if __name__ == "__main__":
    main()
