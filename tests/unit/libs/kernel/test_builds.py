# SPDX-License-Identifier: Apache-2.0
"""The build of the kernel that is loaded is never a guess."""

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import libs.kernel
from tests.unit.libs.kernel.builds import BUILDS, SOURCES, Build, label

KERNEL = Path(libs.kernel.__file__).parent
ROOT = KERNEL.parents[1]
PROGRAM = (
    "import libs.kernel, libs.kernel.scan.scan_cy as s; print(libs.kernel.IS_COMPILED, s.__file__.endswith('.py'))"
)


def run(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Import the kernel below `root` in a new process and print which build it is."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, env=clean | environment, capture_output=True, text=True, check=False
    )


def tree(target: Path, *, extensions: list[str]) -> Path:
    """A copy of libs with only these kernel extensions."""
    ignore = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__")
    shutil.copytree(ROOT / "libs", target / "libs", ignore=ignore)
    for stem in extensions:
        for built in KERNEL.rglob(f"{stem}.*.so"):
            shutil.copy(built, target / built.relative_to(ROOT))
    return target


def test_this_run() -> None:
    """IS_COMPILED tells the build that is really loaded, and the sources are always available."""
    for build in BUILDS:
        assert build.scan_cy.__file__.endswith(".py") is (build is SOURCES)
    assert (len(BUILDS) == 2) is libs.kernel.IS_COMPILED


def test_sources_on_request() -> None:
    """REPUT_NO_EXTENSIONS=1 selects the sources, with and without extensions."""
    assert run(ROOT, REPUT_NO_EXTENSIONS="1").stdout == "False True\n"


def test_missing_extensions(tmp_path: Path) -> None:
    """Without extensions the sources serve silently, unless REPUT_REQUIRE_EXTENSIONS=1 asks for a clear error."""
    bare = tree(tmp_path, extensions=[])
    assert run(bare).stdout == "False True\n"
    refused = run(bare, REPUT_REQUIRE_EXTENSIONS="1")
    assert refused.returncode != 0
    assert "kernel extensions are missing" in refused.stderr
    assert "scan_cy" in refused.stderr


@pytest.mark.skipif(not libs.kernel.IS_COMPILED, reason="needs a built extension")
def test_half_a_build(tmp_path: Path) -> None:
    """Extensions for some modules only are an error that names the others."""
    refused = run(tree(tmp_path, extensions=["text_cy"]))
    assert refused.returncode != 0
    assert "half built" in refused.stderr
    assert run(tree(tmp_path / "pure", extensions=["text_cy"]), REPUT_NO_EXTENSIONS="1").stdout == "False True\n"


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_crc32(build: Build) -> None:
    """The kernel's CRC-32 is zlib's for every size, also for sizes with other code paths."""
    data = bytes(range(256)) * 20
    for size in (*range(1, 70), 255, 256, 1000, 4096, 5000):
        assert build.text_cy.checked_crc32(data[3 : 3 + size]) == zlib.crc32(data[3 : 3 + size])
