# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of processes during a load, sampled from outside.

A load generator's clock starts after its warm-up, which can't be seen from outside; but it stops just before the
generator prints. So the CPU time that counts is the time of the last seconds before that, as many as the generator's
clock ran.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

INTERVAL_S = 0.05
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """Sums over the processes at a moment."""

    at_s: float
    cpu_s: float
    resident_bytes: int
    own_bytes: int
    """Without pages of files, which the kernel can take back."""


class Usage:
    """Samples of some processes, as `watched` makes them."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._samples: list[Sample] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._sample()
        self._thread.start()

    def stop(self) -> None:
        """Make a last sample and end. May be repeated."""
        if not self._is_over.is_set():
            self._is_over.set()
            self._thread.join()
            self._sample()

    def cpu_s(self, seconds: float) -> float:
        """Return the CPU time of the last seconds before the last sample."""
        last = self._samples[-1]
        return last.cpu_s - cpu_at(self._samples, last.at_s - seconds)

    @property
    def resident_megabytes(self) -> float:
        """The most memory at any moment, pages of mapped files included."""
        return max(sample.resident_bytes for sample in self._samples) / MEGABYTE

    @property
    def own_megabytes(self) -> float:
        """The most memory at any moment without pages of files."""
        return max(sample.own_bytes for sample in self._samples) / MEGABYTE

    def _run(self) -> None:
        while not self._is_over.wait(INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        cpu_s, resident_bytes, own_bytes = 0.0, 0, 0
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                times, memory = process.cpu_times(), process.memory_info()
                cpu_s += times.user + times.system
                resident_bytes += memory.rss
                own_bytes += memory.rss - memory.shared
        self._samples.append(Sample(time.perf_counter(), cpu_s, resident_bytes, own_bytes))


def cpu_at(samples: Sequence[Sample], at_s: float) -> float:
    """Return the CPU time at a moment, on the line between the samples around it, or the first sample's before them."""
    for before, after in itertools.pairwise(samples):
        if before.at_s <= at_s < after.at_s:
            share = (at_s - before.at_s) / (after.at_s - before.at_s)
            return before.cpu_s + share * (after.cpu_s - before.cpu_s)
    return samples[0].cpu_s if at_s < samples[0].at_s else samples[-1].cpu_s


@contextlib.contextmanager
def watched(pids: Sequence[int]) -> Iterator[Usage]:
    """Sample within the block."""
    usage = Usage(pids)
    usage.start()
    try:
        yield usage
    finally:
        usage.stop()
