# SPDX-License-Identifier: Apache-2.0
"""A case of the part `power`: a store on a volatile disk, loaded by real clients, whose power fails again and again.

The power fails in the middle of the load, or of a start, after a number of writes that the seed chooses, so between the
write of a record, its sync, a checkpoint, a roll or a rename. The services see their disk die, are killed, and start
again on the remaining data. A message that was acknowledged as on the disk must be there; a message that was
acknowledged from memory may be lost at the end. In flush mode sync no message that a reader saw may be lost either.
"""

import asyncio
import contextlib
import random
import shutil
import tempfile
import traceback
from pathlib import Path

from tests.crash.check import check_live
from tests.crash.history import MEMORY, History
from tests.crash.live_store import LiveStore, Sizes
from tests.crash.nursery import EndedEarly, Nursery
from tests.crash.part import CaseReport
from tests.crash.power.disk import VolatileDisk
from tests.crash.workload import Workload

ROUND_COUNT = 4
"""Cuts of a seed, all on the same store."""
LOAD_S_MAX = 0.6
CUT_TIMEOUT_S = 1.0
"""So long an armed cut may wait for writes; then the power fails at once."""
WRITE_COUNT_MAX = 120
START_WRITE_COUNT_MAX = 40


async def run_case(seed: int, nursery: Nursery) -> CaseReport:
    """Run all rounds of a seed. The first failed round is the last."""
    report = CaseReport(seed)
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix=f"reput-power-{seed}-"))
    disk = VolatileDisk(directory, chance.choice(("ext4", "xfs")))
    store = LiveStore(nursery, disk.root / "store", Sizes.by_chance(chance))
    rounds = Rounds(store, disk, chance, report)
    try:
        await asyncio.to_thread(disk.power_on)
        for number in range(ROUND_COUNT):
            report.wrong += await rounds.run(is_first=number == 0)
            if report.wrong:
                break
    except EndedEarly as ended:
        report.wrong.append(str(ended))
    except Exception:  # noqa: BLE001 - whatever it is, the other cases go on
        report.wrong.append(traceback.format_exc())
    finally:
        await store.close()
        await asyncio.to_thread(disk.power_off)
    report.counts["starts"] = store.start_count
    report.counts["messages acknowledged"] = rounds.history.acknowledged_count
    report.counts["messages lost that were in memory only"] = rounds.history.forgiven_count
    if report.wrong:
        report.wrong.append(f"the services said\n{store.last_words()}")
    shutil.rmtree(directory)
    return report


class Rounds:
    """The rounds of a store."""

    def __init__(self, store: LiveStore, disk: VolatileDisk, chance: random.Random, report: CaseReport) -> None:
        self.history = History()
        self._store = store
        self._disk = disk
        self._chance = chance
        self._report = report

    async def run(self, *, is_first: bool) -> list[str]:
        """Cut the power once. Returns the faults after it."""
        chance = self._chance
        mode = chance.choice(("sync", "sync", "sync", "async"))
        wrong: list[str] = []
        if not is_first and chance.random() < 0.25:
            await self._cut_start(mode)
        else:
            wrong += await self._cut_load(mode)
        await self._back_to_power()
        await self._store.start_commitlog(mode)
        await self._store.start_indexer()
        wrong += await check_live(self._store, self.history, chance)
        self._report.counts["messages compared"] += len(self.history.messages)
        if chance.random() < 0.6:
            await self._store.kill()
            return wrong
        codes = await self._store.stop("indexer", "commitlog")
        return wrong + [f"{name} ended with {code} after SIGTERM" for name, code in codes.items() if code != 0]

    async def _cut_load(self, mode: str) -> list[str]:
        """Fail in the middle of the load."""
        store, chance = self._store, self._chance
        await store.start_commitlog(mode)
        await store.start_indexer()
        workload = Workload(
            self.history,
            chance,
            segment_size_bytes=store.sizes.segment_size_bytes,
            weak_durability_max=MEMORY,
        )
        loading = asyncio.ensure_future(
            workload.run(
                store.commitlog(),
                store.indexer() if mode == "sync" else None,  # records shown from memory may be taken back
                callers=chance.choice((1, 2, 4)),
                streams=chance.choice((1, 2)),
                ends_with=store.children["commitlog"].ended,
            )
        )
        await asyncio.sleep(chance.random() * LOAD_S_MAX)
        await self._cut(chance.randrange(WRITE_COUNT_MAX))
        await asyncio.wait([loading], timeout=0.2)  # requests on their way are answered, or refused
        workload.stop()
        await loading
        return workload.outcomes.wrong

    async def _cut_start(self, mode: str) -> None:
        """Fail in the middle of a start, which may end early then."""
        self._arm(self._chance.randrange(START_WRITE_COUNT_MAX))
        with contextlib.suppress(EndedEarly):
            await self._store.start_commitlog(mode)
            await self._store.start_indexer()
        await self._wait_cut()
        self._report.counts["cuts in a start"] += 1

    async def _cut(self, after_write_count: int) -> None:
        self._arm(after_write_count)
        await self._wait_cut()
        self._report.counts["cuts under load"] += 1

    def _arm(self, after_write_count: int) -> None:
        self._keep, self._seed = self._chance.choice((0.0, 0.2, 0.5, 0.8, 1.0)), self._chance.getrandbits(31)
        self._disk.arm(after_write_count=after_write_count, keep=self._keep, seed=self._seed)

    async def _wait_cut(self) -> None:
        await asyncio.to_thread(self._disk.wait_failed, CUT_TIMEOUT_S)
        await asyncio.to_thread(self._disk.fail_now, keep=self._keep, seed=self._seed)

    async def _back_to_power(self) -> None:
        await self._store.kill()
        held, kept = self._disk.lost_sectors()
        self._report.counts["cuts"] += 1
        self._report.counts["sectors in the cache of the disk"] += held
        self._report.counts["of them kept, out of order"] += kept
        await asyncio.to_thread(self._disk.power_off)
        await asyncio.to_thread(self._disk.power_on)
