# SPDX-License-Identifier: Apache-2.0
"""The part `rounds`: three logs with Indexers in network namespaces, a real etcd, load, and rounds of random faults."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.crash.fault.shim import compile_shim
from tests.crash.part import PartReport, sum_up
from tests.crash.power.disk import reason_not_to_run as reason_without_disk
from tests.crash.rounds.case import ROUND_COUNT, run_case
from tests.crash.rounds.network import enter_own_network
from tests.crash.rounds.network import reason_not_to_run as reason_without_network
from tests.crash.workers import run_seeds
from tests.support.etcd_server import ETCD


class RoundsPart:
    """The part `rounds` of the crash harness."""

    name = "rounds"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 20 // ROUND_COUNT, "long": 300 // ROUND_COUNT}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`. Needs root, the programs that `reason_not_to_run` of network and disk name, etcd and gcc."""
        if reason := reason_not_to_run():
            return PartReport(self.name, {}, [], skipped=reason)
        with tempfile.TemporaryDirectory() as directory:
            environment = {"LD_PRELOAD": str(compile_shim(Path(directory)))}
            seeds = range(first_seed, first_seed + count)
            reports = run_seeds(run_case, seeds, jobs=jobs, environment=environment, prepare=enter_own_network)
            return sum_up(self.name, count, reports, advance)


def reason_not_to_run() -> str:
    """Why there can be no rounds here; empty if nothing is known to be missing."""
    if ETCD is None:
        return "needs etcd: apt-get install -y etcd-server"
    return reason_without_network() or reason_without_disk()


PART = RoundsPart()
