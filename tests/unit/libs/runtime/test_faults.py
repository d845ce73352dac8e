# SPDX-License-Identifier: Apache-2.0
"""Signals are handled on a stack that is large enough for Python and the linker in a handler."""

import os
import subprocess
import sys

from libs.runtime.watch import faults
from tests.support.forks import REPOSITORY

PROGRAM = """
import ctypes, os, signal
from libs.runtime.watch import faults

faults.watch("commitlog", is_console=True)
start, size_bytes = faults.signal_stack()
ctypes.memset(start, 0xAA, size_bytes)
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append("handled"))
os.kill(os.getpid(), signal.SIGTERM)
untouched = ctypes.string_at(start, size_bytes)
print(size_bytes, size_bytes - (len(untouched) - len(untouched.lstrip(b"\\xaa"))), *told)
"""


def test_a_handler_has_room() -> None:
    """A handler takes less than half of the stack.

    The linker of the process looks names up as late as it can.
    """
    environment = {name: value for name, value in os.environ.items() if name != "LD_BIND_NOW"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    size_bytes, used_bytes, told = run.stdout.split()
    assert told == "handled"
    assert int(size_bytes) == faults.SIGNAL_STACK_BYTES
    assert 0 < int(used_bytes) < faults.SIGNAL_STACK_BYTES // 2, used_bytes
