# SPDX-License-Identifier: Apache-2.0
"""How much the product's Python code does: instructions that it executes, and bytes that it takes at most.

The instructions are the interpreter's instructions in files of `libs/` and `services/`, in this thread: a loop over
stored data shows in them, wherever it is written. The work of C code for an instruction (a copy of a list) shows in the
bytes. With the uncompiled kernel its instructions count, too.
"""

import contextlib
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
ROOMS = tuple(f"{ROOT / room}/" for room in ("libs", "services"))
STANDING_IN = f"{ROOT}/libs/machine/memory_fs.py"
"""The twin of the kernel's file system in tests: its work is not the product's."""


@dataclass(slots=True)
class PythonWork:
    """The work of a block, known when it is over."""

    instruction_count: int = 0
    taken_bytes: int = 0


@contextlib.contextmanager
def instructions() -> Iterator[PythonWork]:
    """Count the instructions of the block."""
    work = PythonWork()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "call" and not _is_product(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        work.instruction_count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield work
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def taken_memory() -> Iterator[PythonWork]:
    """Find the most bytes that the block held beyond the bytes held before, including bytes that it gave back."""
    work = PythonWork()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield work
        work.taken_bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _is_product(file: str) -> bool:
    return file.startswith(ROOMS) and file != STANDING_IN
