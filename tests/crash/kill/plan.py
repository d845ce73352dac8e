# SPDX-License-Identifier: Apache-2.0
"""The plan: which service is killed where, in which flush mode.

Failpoints are read from the sources, so that a new failpoint is in the plan by itself. The plan has as many laps as
there are flush modes; each lap meets every place once, in the same order, and over all laps each place is met in every
mode. The rounds of consecutive seeds go through the plan in turn, so each seed meets the same targets whenever it is
run, and a run of `seeds_of_a_lap` seeds, wherever it begins, meets every place.
"""

import functools
import random
import re
from dataclasses import dataclass
from pathlib import Path

from tests.crash.live_store import FLUSH_MODES
from tests.support.forks import REPOSITORY

ROUND_COUNT = 5
"""Rounds of a seed, all on the same store."""

ANY = ""
"""In place of a failpoint: killed from outside, at any moment of the load."""

EARLY = "start"
"""In place of a failpoint: killed from outside, at any moment of the start."""

WITH_FILES = ("commitlog", "indexer", "janitor")
SERVICES = (*WITH_FILES, "delivery")
FAILPOINT = re.compile(r'failpoint\("([a-z_]+\.[a-z_]+)"\)')
SHARED_SOURCES = {
    Path("libs/machine/posix_fs.py"): WITH_FILES,
    Path("libs/segments"): ("commitlog", "indexer"),
}
POOL_ONLY = ("segment.before_commit", "segment.after_commit")
BATCHES_ONLY = (*POOL_ONLY, "segment.before_write", "file.write")
MAPPED_ONLY = ("file.sync", "file.read", "file.reserve", "create.before_rename", "create.after_rename")
SIMULATED_ONLY = (
    "removal.before_remove",
    "removal.after_remove",
    "generation.before_remove",
    "generation.after_remove",
)
FOLLOWING_ONLY = tuple(f"cut.after_{what}" for what in ("copy", "checkpoint", "snapshot", "truncate", "epochs"))
NOT_PASSED = {
    *(("commitlog", name) for name in FOLLOWING_ONLY),
    *(("indexer", name) for name in (*BATCHES_ONLY, "file.read", *SIMULATED_ONLY)),
    *(("janitor", name) for name in (*BATCHES_ONLY, *MAPPED_ONLY)),
}
"""Pairs of service and failpoint that cannot meet: queues are stored into their mappings and need no search for their
end's sectors, and the Janitor maps no file. Queues that can be removed have lost all their records, but the queues of a
load of seconds have not, and queues begin again in the logs of RocketMQ; the simulation removes queues and lets them
begin again, and ends processes meanwhile. Only a log that follows another log is cut, and here is a single log; the
tests of the cut end it at each of these places.
"""

ORDINALS_MAX = {
    **dict.fromkeys(("settle.", "mark_clean.", "delay_offsets.", "file.reserve", "index_filter."), 1),
    **dict.fromkeys(("delete_segment.", "retention.", "index_file.before_remove", "index_file.after_remove"), 3),
    **dict.fromkeys(("append.", "queue.", "index.", "segment.before_write", "file.write"), 100),
}
"""Beginnings of failpoint names, with the number of passes of a load. Other failpoints are passed now and then."""
ORDINAL_MAX = 10


@dataclass(frozen=True, slots=True)
class Target:
    """Kill this service at this failpoint in this mode."""

    service: str
    failpoint: str
    mode: str

    @property
    def needs_janitor(self) -> bool:
        """Whether only a Janitor's run leads there."""
        names = ("delete_segment.", "retention.", "index_file.before_remove", "index_file.after_remove")
        return self.service == "janitor" or self.failpoint.startswith(names)

    @property
    def needs_unclean_start(self) -> bool:
        """Whether only a start after a death leads there."""
        return self.failpoint.startswith("settle.")

    @property
    def needs_clean_stop(self) -> bool:
        """Whether only an orderly stop leads there."""
        return self.failpoint.startswith("mark_clean.")

    @property
    def is_named(self) -> bool:
        """Whether it is a failpoint."""
        return self.failpoint not in (ANY, EARLY)

    def ordinal(self, chance: random.Random) -> int:
        """The pass of the failpoint at which to kill, with early passes as likely as all later passes."""
        found = [most for start, most in ORDINALS_MAX.items() if self.failpoint.startswith(start)]
        return int((found or [ORDINAL_MAX])[0] ** chance.random())


def failpoints() -> dict[str, set[str]]:
    """Names of all failpoints that each service may pass."""
    found: dict[str, set[str]] = {service: set() for service in SERVICES}
    sources = {**SHARED_SOURCES, **{Path("services") / service: (service,) for service in SERVICES}}
    for source, services in sources.items():
        path = REPOSITORY / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for name in FAILPOINT.findall(file.read_text()):
                for service in services:
                    if (service, name) not in NOT_PASSED:
                        found[service].add(name)
    return found


@functools.cache
def places() -> list[tuple[str, str]]:
    """Service and failpoint of all targets of a lap, well mixed, always in the same order."""
    found = [(service, name) for service, names in failpoints().items() for name in sorted(names)]
    for service in ("commitlog", "indexer", "delivery"):
        found += [(service, ANY), (service, ANY), (service, EARLY)]
    random.Random(1).shuffle(found)
    return found


@functools.cache
def targets() -> list[Target]:
    """All laps in turn."""
    modes = tuple(FLUSH_MODES)
    return [
        Target(service, name, "pool" if name in POOL_ONLY else modes[(number + lap) % len(modes)])
        for lap in range(len(modes))
        for number, (service, name) in enumerate(places())
    ]


def targets_of(seed: int) -> list[Target]:
    """The targets of a seed, a target for each round."""
    plan = targets()
    return [plan[(seed * ROUND_COUNT + number) % len(plan)] for number in range(ROUND_COUNT)]


def seeds_of_a_lap() -> int:
    """So many consecutive seeds meet every place."""
    return -(-len(places()) // ROUND_COUNT) + 1


def seeds_of_all() -> int:
    """So many consecutive seeds meet every target."""
    return -(-len(targets()) // ROUND_COUNT) + 1
