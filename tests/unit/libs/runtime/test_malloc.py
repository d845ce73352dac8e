# SPDX-License-Identifier: Apache-2.0
"""Freed memory is returned to the system while a process is idle, although small blocks hold the heap's end."""

import re
import subprocess
import sys

import pytest

from libs.runtime.watch import malloc
from tests.support.forks import REPOSITORY

PROGRAM = """
import re, sys, time
from pathlib import Path
from libs.runtime.watch import malloc

def held_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def return_and_free():
    return_memory()
    late.clear()

return_memory, malloc.give_back = malloc.give_back, return_and_free
malloc.tune()
start = held_mib()
large, late, small = [], [], []
for _ in range(100):
    large.append(bytearray(b"1" * (1 << 20)))
    late.append(bytearray(b"1" * (1 << 20)))
    small.append(bytearray(2_000))
peak = held_mib()
large.clear()
with malloc.giving_back(interval_s=0.05):
    end_s = time.monotonic() + 30
    while held_mib() > start + 20 and time.monotonic() < end_s:
        time.sleep(0.05)
print(round(peak - start), round(held_mib() - start))
"""


@pytest.mark.skipif(not malloc.free_bytes(), reason="this libc's malloc tells nothing")
def test_freed_memory_goes_back_while_idle() -> None:
    """Freed memory is returned while idle, in a process with a heap of its own.

    Half of the memory is freed at the end of the first return.
    """
    run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    peak_mib, kept_mib = (int(word) for word in re.findall(r"\d+", run.stdout))
    assert peak_mib >= 190
    assert kept_mib <= 20


def test_the_thread_ends_with_the_block() -> None:
    """A stop does not wait for the next look."""
    with malloc.giving_back(interval_s=3_600):
        pass
