# SPDX-License-Identifier: Apache-2.0
"""A case: a store that is loaded, killed, restarted and checked, again and again, so that recoveries pile up.

A round: start with an armed failpoint, load, die there (or be killed from outside), then start without failpoints,
check everything, and stop cleanly or by another kill. Services that survive the death of another may be left running.
"""

import asyncio
import contextlib
import random
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.janitor.v1 import retention_service_pb2 as janitor_pb

from tests.crash.check import check_live
from tests.crash.delayed import check_file_at_end, level_ends, wait_delivered
from tests.crash.history import MEMORY, History
from tests.crash.kill.plan import ANY, EARLY, Target, targets_of
from tests.crash.live_store import BUG_MARKS, FLUSH_MODES, LiveStore, Sizes
from tests.crash.nursery import EndedEarly, Nursery
from tests.crash.workload import Workload

LOAD_S_MAX = 0.7
PATIENT_LOAD_S_MAX = 10.0
PATIENT_PAUSE_S = 0.01
EARLY_S_MAX = 0.12
DEATH_NOTICE_TIMEOUT_S = 1.0


@dataclass
class CaseReport:
    """The report of a case. `fired` counts the targets that were really met."""

    seed: int
    fired: Counter[Target] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


async def run_case(seed: int, nursery: Nursery) -> CaseReport:
    """Run all rounds of a seed. The first failed round is the last, and its store is kept."""
    report = CaseReport(seed)
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix=f"reput-kill-{seed}-"))
    store = LiveStore(nursery, directory / "store", Sizes.by_chance(chance))
    rounds = Rounds(store, chance, report)
    target = None
    try:
        for target in targets_of(seed):
            report.wrong += await rounds.run(target, target.ordinal(chance))
            if not report.wrong and not report.fired[target]:
                report.wrong += await rounds.run(target, 1, PATIENT_LOAD_S_MAX)  # it came not often enough
            if report.wrong:
                break
        else:
            report.wrong += await rounds.finish()
    except EndedEarly as ended:
        report.wrong.append(str(ended))
    except Exception:  # noqa: BLE001 - whatever it is, the other cases go on
        report.wrong.append(traceback.format_exc())
    finally:
        await store.close()
    report.counts["SIGKILLs"] = store.kill_count
    report.counts["starts"] = store.start_count
    report.counts["messages acknowledged"] = rounds.history.acknowledged_count
    if report.wrong:
        report.wrong.append(
            f"target {target}, the store is kept in {directory}, its services said\n{store.last_words()}"
        )
    else:
        shutil.rmtree(directory)
    return report


class Rounds:
    """The rounds of a store."""

    def __init__(self, store: LiveStore, chance: random.Random, report: CaseReport) -> None:
        self.history = History()
        self._store = store
        self._chance = chance
        self._report = report
        self._is_unclean = False
        """Whether the CommitLog's next start will find that the last process died."""

    async def run(self, target: Target, ordinal: int, load_s_max: float = LOAD_S_MAX) -> list[str]:
        """Run a round, with death at the n-th time that the target is passed. Returns the faults after it."""
        wrong = await self._break(target, ordinal, load_s_max)
        wrong += self._bugs()
        self._report.counts["rounds"] += 1
        if wrong:
            return wrong
        await self._kill_survivors()
        await self._store.start_commitlog(self._chance.choice(tuple(FLUSH_MODES)))
        await self._store.start_indexer()  # without a Delivery, which would append while the log is checked
        wrong = await check_live(self._store, self.history, self._chance)
        self._report.counts["checks"] += 1
        self._report.counts["messages compared"] += len(self.history.messages)
        wrong += await self._end()
        return wrong + self._bugs()

    async def finish(self) -> list[str]:
        """Let Delivery deliver all that waits, and stop it. Then each delayed message is there once."""
        store = self._store
        await self._start("", "", "async", with_janitor=False)
        workload = self._workload("async")  # some of its messages become due while Delivery runs
        await self._load(workload, Target("commitlog", ANY, "async"), LOAD_S_MAX)
        status = await store.commitlog().log.GetStatus(log_pb.GetStatusRequest())
        first = status.min_physical_offset + store.trimmed_ahead_bytes
        wrong = workload.outcomes.wrong
        wrong += await wait_delivered(store, self.history, min_physical_offset=first)
        codes = await store.stop("delivery")
        wrong += await check_live(store, self.history, self._chance)
        ends = await level_ends(store)
        codes |= await store.stop("indexer", "commitlog")
        wrong += [f"{name} ended with {code} after SIGTERM" for name, code in codes.items() if code != 0]
        wrong += check_file_at_end(store.data_dir, ends)
        self._report.counts["delayed messages"] = sum(one.is_delayed for one in self.history.stored())
        self._report.counts["delayed messages delivered"] = sum(
            one.copy_physical_offset >= 0 for one in self.history.stored()
        )
        return wrong + self._bugs()

    async def _break(self, target: Target, ordinal: int, load_s_max: float) -> list[str]:
        """Start and load until the target is met, or until time is over. Then a service is killed from outside."""
        store, chance = self._store, self._chance
        if target.needs_unclean_start and not self._is_unclean:
            await self._start("", "", target.mode, with_janitor=False)
            await self._load(self._workload(target.mode), Target("commitlog", ANY, target.mode), LOAD_S_MAX)
            await store.kill()
        armed = f"{target.failpoint}=kill@{ordinal}" if target.is_named else ""
        starting = asyncio.ensure_future(
            self._start(target.service, armed, target.mode, target.needs_janitor or chance.random() < 0.15)
        )
        if target.failpoint == EARLY:
            await asyncio.wait([starting], timeout=chance.random() * EARLY_S_MAX)
            if target.service in store.children:
                store.children[target.service].send(signal.SIGKILL)
        workload = None
        try:
            await starting
            workload = self._workload(target.mode, pause_s=PATIENT_PAUSE_S if load_s_max > LOAD_S_MAX else 0.0)
            await self._load(workload, target, load_s_max)
        except EndedEarly as ended:
            if ended.code != -signal.SIGKILL:
                return [str(ended)]
        victim = store.children.get(target.service)
        if victim is not None and workload is not None and workload.was_turned_away:
            await asyncio.wait([victim.ended], timeout=DEATH_NOTICE_TIMEOUT_S)  # the news of a death may be on its way
        if target.needs_clean_stop and victim is not None:
            victim.send(signal.SIGTERM)
            await victim.wait_ended()
        met = victim is not None and victim.ended.done()
        if not met and target.service in store.children:
            await store.kill(target.service)
        if met or not target.is_named:
            self._report.fired[target] += 1
        wrong = workload.outcomes.wrong if workload is not None else []
        return wrong + [
            f"{name} ended with {child.ended.result()} although it was not told to"
            for name, child in store.children.items()
            if child.ended.done() and child.ended.result() not in (0, -signal.SIGKILL)
        ]

    async def _start(self, service: str, armed: str, mode: str, with_janitor: bool) -> None:
        """Start services that do not run, the named service with a failpoint."""
        store = self._store
        await store.start_commitlog(mode, failpoints=armed if service == "commitlog" else "")
        await store.start_indexer(failpoints=armed if service == "indexer" else "")
        await store.start_delivery(failpoints=armed if service == "delivery" else "")
        if with_janitor:
            await store.start_janitor(failpoints=armed if service == "janitor" else "")

    def _workload(self, mode: str, pause_s: float = 0.0) -> Workload:
        return Workload(
            self.history,
            self._chance,
            segment_size_bytes=self._store.sizes.segment_size_bytes,
            weak_durability_max=MEMORY if mode == "pool" else 0,
            delay_chance=0.05,
            pause_s=pause_s,
        )

    async def _load(self, workload: Workload, target: Target, load_s_max: float) -> None:
        store, chance = self._store, self._chance
        duration_s = load_s_max if target.failpoint != ANY else chance.random() * load_s_max
        cleaning = asyncio.create_task(self._clean()) if store.is_running("janitor") else None
        try:
            await workload.run(
                store.commitlog(),
                store.indexer(),
                callers=chance.choice((1, 2, 4)),
                streams=chance.choice((1, 2, 3)),
                duration_s=duration_s,
                ends_with=store.children[target.service].ended,
            )
        finally:
            if cleaning is not None:
                cleaning.cancel()
                await asyncio.wait([cleaning])
        self._report.counts["batches sent"] += workload.outcomes.batch_count

    async def _clean(self) -> None:
        """Let the Janitor delete all that it may, again and again."""
        janitor = self._store.janitor()
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await janitor.RunOnce(janitor_pb.RunOnceRequest())
            await asyncio.sleep(0.05)

    async def _kill_survivors(self) -> None:
        """Kill or stop the services that still run, in any order."""
        survivors = [name for name in self._store.children if self._store.is_running(name)]
        self._chance.shuffle(survivors)
        if self._chance.random() < 0.8:
            await self._store.kill(*survivors)
        else:
            await self._store.stop(*survivors)

    async def _end(self) -> list[str]:
        """End the round: by kill, or by a stop that must be clean and say so at the next start."""
        if self._chance.random() < 0.6:
            await self._store.kill()
            self._is_unclean = True
            return []
        codes = await self._store.stop("indexer", "commitlog")
        self._report.counts["clean stops"] += 1
        wrong = [f"{name} ended with {code} after SIGTERM" for name, code in codes.items() if code != 0]
        if (self._store.data_dir / "abort").exists():
            wrong.append("the file abort is there after a clean stop")
        await self._store.start_commitlog()
        status = await self._store.commitlog().log.GetStatus(log_pb.GetStatusRequest())
        if not status.recovery.was_clean_stop or status.recovery.truncated_bytes:
            wrong.append(f"after a clean stop the next start says {status.recovery}")
        self._is_unclean = bool(wrong)
        return wrong + [
            f"the CommitLog ended with {code}" for code in (await self._store.stop("commitlog")).values() if code
        ]

    def _bugs(self) -> list[str]:
        """Lines of the services' logs that only a bug writes."""
        return [
            f"{name} says: {line[:1000]}"
            for name, child in self._store.children.items()
            for line in child.lines
            if any(mark in line for mark in BUG_MARKS)
        ]
