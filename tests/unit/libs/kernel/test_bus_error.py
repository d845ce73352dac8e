# SPDX-License-Identifier: Apache-2.0
"""A touch of a missing page of a mapped file ends the process with a line, not with a signal."""

import subprocess
import sys
from pathlib import Path

import pytest

import libs.kernel
from libs.kernel import bus_error_cy

ROOT = Path(libs.kernel.__file__).parents[2]
PAGE_SIZE_BYTES = 4096
PROGRAM = """
import os, sys
from pathlib import Path
from libs.kernel import bus_error_cy
from libs.machine.posix_fs import PosixFs
path = Path(sys.argv[1])
mapped = PosixFs().create_mapped(path, 4 * 4096)
assert bus_error_cy.watch(b"before: ", b", after\\n")
os.truncate(path, 4096)
print(mapped.buffer[4095], flush=True)
mapped.buffer[3 * 4096 + 5]
"""


@pytest.mark.skipif(not libs.kernel.IS_COMPILED, reason="only the compiled kernel can")
@pytest.mark.parametrize("name", ["file", "a file with spaces", "ä" * 100])
def test_the_file_and_the_byte_are_named(tmp_path: Path, name: str) -> None:
    """A file that another program made shorter ends the process with exit code 1 and a line on standard error."""
    path = tmp_path / name
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "0\n"), ended
    assert ended.stderr == f"before: {path} at byte {3 * PAGE_SIZE_BYTES + 5}, after\n"


def test_a_long_line_is_refused() -> None:
    """A line that does not fit into the handler's memory is refused with ValueError."""
    with pytest.raises(ValueError, match="too long"):
        bus_error_cy.watch(bytes(512), b"")
    with pytest.raises(ValueError, match="too long"):
        bus_error_cy.watch(b"", bytes(64))


@pytest.mark.skipif(libs.kernel.IS_COMPILED, reason="of the sources")
def test_the_sources_can_not() -> None:
    """The sources report that they cannot watch for the signal."""
    assert not bus_error_cy.watch(b"", b"")
