# SPDX-License-Identifier: Apache-2.0
"""The failing disk in `shim.c`: compiles it, and writes its plans."""

import errno
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
MARK = "shim: "
"""The beginning of a line about a fault."""

ALWAYS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """From the n-th `call` on files whose path contains `part`, `count` calls fail; error 0 makes short writes."""

    call: str
    error: int
    first: int
    count: int
    part: str

    def environment(self) -> dict[str, str]:
        """The environment variables with which a service is started."""
        return {"REPUT_FAULT": f"{self.call}:{self.error}:{self.first}:{self.count}:{self.part}"}

    def __str__(self) -> str:
        name = errno.errorcode.get(self.error, "half of it")
        return f"{self.call} of {self.part} gives {name} {self.count} times from number {self.first} on"


def compile_shim(directory: Path) -> Path:
    """Compile it into a directory. Raises FileNotFoundError without a compiler."""
    library = directory / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library
