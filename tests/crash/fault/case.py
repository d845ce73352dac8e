# SPDX-License-Identifier: Apache-2.0
"""A case: a store whose disk fails in a certain way under load, and the promises that hold then and afterwards.

Dead disk: from a moment on every sync and write fails, and unsynced data is lost. Failed sync: a sync says EIO, the
next syncs lie. Full disk: no space for a while, with a kill in between or not, or until the Janitor makes space. No
space at a call, short writes: the n-th call of a kind on files of a kind.
"""

import asyncio
import contextlib
import errno
import random
import re
import shutil
import signal
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.janitor.v1 import retention_service_pb2 as janitor_pb

from tests.crash.check import check_live, read_log, settle
from tests.crash.fault.shim import ALWAYS, MARK, Plan
from tests.crash.fault.small_disk import Kind, SmallDisk
from tests.crash.history import LOCAL_DISK, MEMORY, History
from tests.crash.live_store import FLUSH_MODES, LiveStore, Sizes
from tests.crash.nursery import EndedEarly, Nursery
from tests.crash.part import CaseReport
from tests.crash.workload import Workload, reason_of_error

SMALL_DISK_SIZE_BYTES, LARGE_DISK_SIZE_BYTES = 40 << 20, 256 << 20
LOAD_S_MAX = 0.5
FULL_S_MAX = 4.0
RESUME_TIMEOUT_S = 10.0
RESUME_LOOK_S = 0.02
NOTICE_TIMEOUT_S = 2.0
LAZY = ("--flush-interval-ms", "400", "--flush-thorough-interval-ms", "1000", "--snapshot-interval-ms", "1000")
LAZY_CHANCE = REGROWN_CHANCE = 0.5
CLEAN, FAILURE, SEALED = 0, 1, 3
"""Exit codes of a service."""

NO_ROOM = "the disk has no room"
"""The text of a start that was refused for lack of space."""

FILES = {
    "commitlog": ("/commitlog", "/checkpoint", "/queue_offsets", "/topics.json", "/epochFileCheckpoint", "/abort"),
    "indexer": ("/consumequeue", "/index/", "/index_progress", "/consumerOffset.json"),
}
"""Parts of the paths of the files that each service writes."""

DATA_FILE = re.compile(r"/(commitlog|consumequeue/.*|index)/\d{17,20} gives")
"""A fault of a file of the log, a queue or the index, as the shim prints it."""

EVER_REFUSED = ("BATCH_TOO_LARGE", "MESSAGE_TOO_LARGE", "QUEUE_OUT_OF_RANGE")
"""Reasons of refusals that the load asks for."""

EXPECTED_REFUSALS = {"", "STORE_FULL", "STORE_SEALED", "STOPPING", "RECOVERING", *EVER_REFUSED}


async def run_case(seed: int, nursery: Nursery) -> CaseReport:
    """Run the scenario of a seed; if anything is wrong its store is kept."""
    report = CaseReport(seed)
    directory = Path(tempfile.mkdtemp(prefix=f"reput-fault-{seed}-"))
    case = FaultCase(seed, nursery, directory, report)
    scenario = SCENARIOS[seed % len(SCENARIOS)]
    try:
        await scenario(case)
    except EndedEarly as ended:
        report.wrong.append(str(ended))
    except Exception:  # noqa: BLE001 - whatever it is, the other cases go on
        report.wrong.append(traceback.format_exc())
    report.counts[scenario.__name__.replace("_", " ")] += 1
    words = case.store.last_words()
    await case.store.close()
    if report.wrong:
        if case.disk is not None:
            shutil.copytree(case.disk.root, directory / "kept", ignore=shutil.ignore_patterns("ballast"))
        report.wrong.append(f"{scenario.__name__}, {case.what}, the store is kept in {directory}\n{words}")
    if case.disk is not None:
        case.disk.unmount()
    if not report.wrong:
        shutil.rmtree(directory)
    report.counts["messages acknowledged"] = case.history.acknowledged_count
    return report


class FaultCase:
    """A store and the objects that a scenario needs. `what` is for people."""

    def __init__(self, seed: int, nursery: Nursery, directory: Path, report: CaseReport) -> None:
        self.chance = random.Random(seed)
        self.history = History()
        self.report = report
        self.disk: SmallDisk | None = None
        self.mode = tuple(FLUSH_MODES)[seed // len(SCENARIOS) % len(FLUSH_MODES)]
        self.what = self.mode
        self.store = LiveStore(nursery, directory / "store", Sizes.by_chance(self.chance))
        self._directory = directory

    def use_disk(self, kind: Kind, size_bytes: int) -> SmallDisk:
        """Put the store on a disk of its own."""
        self.disk = SmallDisk(self._directory, kind, size_bytes)
        self.store.data_dir = self.disk.root / "store"
        self.what += f", {kind}"
        return self.disk

    async def start(self, *log_flags: str, service: str = "", plan: Plan | None = None) -> None:
        """Start both services, the named service with a failing disk."""
        environment = plan.environment() if plan is not None else {}
        log_environment = environment if service == "commitlog" else None
        await self.store.start_commitlog(self.mode, *log_flags, environment=log_environment)
        await self.store.start_indexer(environment=environment if service == "indexer" else None)

    def workload(self, *, is_lost: bool = False, disk_chance: float = 0.25) -> Workload:
        """A load. With `is_lost` the fault takes messages in memory alone, as the kill of a pool always does.

        `disk_chance` is the part of the batches that asks for the disk.
        """
        is_weak = is_lost or self.mode == "pool"
        size_bytes = self.store.sizes.segment_size_bytes
        return Workload(
            self.history,
            self.chance,
            segment_size_bytes=size_bytes,
            weak_durability_max=MEMORY if is_weak else 0,
            new_topic_chance=0.02,
            disk_chance=disk_chance,
        )

    async def load(
        self, workload: Workload, duration_s: float, service: str = "commitlog", also_expected: str = ""
    ) -> None:
        """Load until the time is over or the service has ended."""
        ended = self.store.children[service].ended
        await workload.run(self.store.commitlog(), self.store.indexer(), duration_s=duration_s, ends_with=ended)
        self.judge_answers(workload, also_expected=also_expected)

    async def regrow(self) -> None:
        """Load the CommitLog alone, so that its new history is longer than the lost history that the indexes have."""
        log = self.store.commitlog()
        status = await log.log.GetStatus(log_pb.GetStatusRequest())
        messages = await read_log(log, status.min_physical_offset)
        self.report.wrong += settle(
            self.history,
            messages,
            min_physical_offset=status.min_physical_offset,
            end_physical_offset=status.max_physical_offset,
        )
        workload = self.workload()
        await workload.run(log, None, duration_s=LOAD_S_MAX)
        self.judge_answers(workload)

    def judge_answers(self, workload: Workload, *, also_expected: str = "") -> None:
        """Take over the faults of the answers themselves."""
        self.report.wrong += workload.outcomes.wrong
        odd = workload.outcomes.refusal_reasons.keys() - EXPECTED_REFUSALS - {also_expected}
        if odd:
            self.report.wrong.append(f"appends were refused for {sorted(odd)}")

    async def check(self) -> None:
        """All checks, with both services running and nothing failing; after a death before anything is appended."""
        self.report.counts["checks"] += 1
        self.report.wrong += await check_live(self.store, self.history, self.chance)

    async def check_resumed(self) -> None:
        """Appends must be taken and synced again, within a while."""
        log, answer = self.store.commitlog(), ""
        workload = self.workload()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESUME_TIMEOUT_S):
                while answer in ("", "STORE_FULL", *EVER_REFUSED):
                    batch = workload.next_batch()
                    messages = [sent.to_request() for sent in batch.messages]
                    try:
                        request = append_pb.AppendRequest(messages=messages, durability=LOCAL_DISK)
                        result = (await log.append.Append(request)).result
                    except grpc.aio.AioRpcError as error:
                        answer = reason_of_error(error) or str(error.details())
                        workload.refused(batch, answer)
                        await asyncio.sleep(RESUME_LOOK_S)
                    else:
                        self.report.wrong += self.history.acknowledge(batch, result, weak_durability_max=0)
                        return
        self.report.wrong.append(f"appends did not resume: {answer}")

    def faults(self, service: str) -> list[str]:
        """Lines of the shim that a service's log has."""
        return [line for line in self.store.children[service].lines if line.startswith(MARK)]

    async def expect_sealed(self, service: str) -> None:
        """The service must end by itself, because the content of its disk is unknown."""
        code = await self.store.children[service].wait_ended()
        if code != SEALED:
            self.report.wrong.append(f"the {service} ended with {code} after its data could not be written or synced")

    def expect_alive(self, *services: str) -> None:
        """These services must still run."""
        for name in services:
            if not self.store.is_running(name):
                self.report.wrong.append(f"the {name} ended with {self.store.children[name].ended.result()}")


async def dead_disk(case: FaultCase) -> None:
    """A real ext4 dies under load, again and again: services end by themselves, and synced messages are there."""
    disk = case.use_disk("ext4", LARGE_DISK_SIZE_BYTES)
    for _ in range(3):
        is_lazy = case.chance.random() < LAZY_CHANCE  # then the indexes are synced before the log is
        await case.start(*(LAZY if is_lazy else ()))
        workload = case.workload(is_lost=True, disk_chance=0.02 if is_lazy else 0.25)
        asyncio.get_running_loop().call_later(case.chance.uniform(0.05, LOAD_S_MAX), _die, disk, workload)
        await case.load(workload, duration_s=30, also_expected="INTERNAL")  # a file could not be made
        for name, child in case.store.children.items():
            await asyncio.wait([child.ended], timeout=NOTICE_TIMEOUT_S)
            if case.store.is_running(name):
                case.report.counts[f"{name} had nothing to sync"] += 1
            elif (code := await child.wait_ended()) in (SEALED, -signal.SIGBUS):
                case.report.counts[f"{name} ended with {code}"] += 1
            else:
                case.report.wrong.append(f"the {name} ended with {code} when its disk died")
        await case.store.kill()
        disk.revive()
        if case.mode != "sync":
            case.history.seen.clear()  # readers see messages that are in memory alone
        await case.store.start_commitlog(case.mode)
        if case.chance.random() < REGROWN_CHANCE:
            await case.regrow()
        await case.store.start_indexer()
        await case.check()
        await case.store.kill()


def _die(disk: SmallDisk, workload: Workload) -> None:
    """From here on the kernel itself lies.

    A sync of unwritten extents that is under way when an ext4 is shut down may return 0, although they stay unwritten.
    """
    disk.die()
    workload.weak_durability_max = LOCAL_DISK


async def failed_sync(case: FaultCase) -> None:
    """A sync fails, and the next syncs report success: no service may believe them."""
    service = case.chance.choice(tuple(FILES))
    part = case.chance.choice(("/commitlog/0", *FILES[service]) if service == "commitlog" else FILES[service])
    plan = Plan("sync", errno.EIO, case.chance.randrange(1, 12), 1, part)
    case.what += f", {service}: {plan}"
    try:
        await case.start(service=service, plan=plan)
    except EndedEarly as ended:
        case.report.counts["starts refused for a failed sync"] += 1
        if ended.code not in (FAILURE, SEALED) or not case.faults(service):
            raise
        await case.store.kill()
        await case.start()
    # a small file that can't be synced fails the append that needs it, and is written anew for the next append
    await case.load(case.workload(), LOAD_S_MAX * 2, service, also_expected="INTERNAL")
    faults = case.faults(service)
    case.report.counts["syncs failed"] += len(faults)
    if any(DATA_FILE.search(line) for line in faults):
        await case.expect_sealed(service)
    await case.store.kill()
    await case.start()
    await case.check()


async def full_disk(case: FaultCase) -> None:
    """The disk fills up under load: appends are refused, reads go on, no service dies, and appends resume later."""
    disk = case.use_disk(case.chance.choice(("tmpfs", "ext4")), SMALL_DISK_SIZE_BYTES)
    await case.start()
    await case.store.start_janitor()
    for ending in case.chance.sample(("free", "janitor", "kill"), 2):
        workload = case.workload()
        running = asyncio.create_task(case.load(workload, FULL_S_MAX))
        await asyncio.sleep(case.chance.random() * LOAD_S_MAX)
        disk.fill(case.chance.choice((0, 4096, 30_000, 200_000)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FULL_S_MAX):
                await workload.was_full.wait()
                await asyncio.sleep(case.chance.random() * 0.2)
        workload.stop()
        await running
        if not workload.was_full.is_set():
            case.report.wrong.append(f"a full disk refused nobody: {workload.outcomes.refusal_reasons}")
        case.expect_alive("commitlog", "indexer", "janitor")
        if case.report.wrong:
            return
        status = await case.store.commitlog().log.GetStatus(log_pb.GetStatusRequest())
        await read_log(case.store.commitlog(), status.min_physical_offset)
        case.report.counts[f"full disk, {ending}"] += 1
        await ENDINGS[ending](case, disk)
        await case.check_resumed()
        await case.check()
        case.expect_alive("commitlog", "indexer", "janitor")
        disk.free()


async def _freed(case: FaultCase, disk: SmallDisk) -> None:
    disk.free()


async def _freed_by_janitor(case: FaultCase, disk: SmallDisk) -> None:
    """The Janitor needs no space to make space."""
    before = await case.store.commitlog().log.GetStatus(log_pb.GetStatusRequest())
    if before.indexed_physical_offset < before.min_physical_offset + before.segment_size_bytes:
        case.report.counts["the Janitor may delete nothing that is not indexed"] += 1
        disk.free()
        return
    for _ in range(20):
        with contextlib.suppress(grpc.aio.AioRpcError):
            await case.store.janitor().RunOnce(janitor_pb.RunOnceRequest())
        after = await case.store.commitlog().log.GetStatus(log_pb.GetStatusRequest())
        if after.min_physical_offset > before.min_physical_offset:
            break
        await asyncio.sleep(0.05)
    else:
        indexed = f"indexed up to {before.indexed_physical_offset}"
        case.report.wrong.append(f"the Janitor deleted nothing of {before.segment_count} segments, {indexed}")
    disk.free()


async def _killed(case: FaultCase, disk: SmallDisk) -> None:
    """Killed while full: the CommitLog starts all the same.

    The Indexer may refuse with a single line, and starts later.
    """
    await case.store.kill()
    await case.store.start_commitlog(case.mode)
    try:
        await case.store.start_indexer()
    except EndedEarly as ended:
        case.report.counts["Indexers refused by a full disk"] += 1
        if ended.code != FAILURE or NO_ROOM not in str(ended):
            raise
    await case.store.kill()
    disk.free()
    await case.start()
    await case.check()
    await case.store.start_janitor()


ENDINGS = {"free": _freed, "janitor": _freed_by_janitor, "kill": _killed}


async def no_space_at_a_call(case: FaultCase) -> None:
    """The n-th request for space is refused, once or for a while: at the start that is a line, later it passes."""
    service = case.chance.choice(tuple(FILES))
    call = case.chance.choice(("allocate", "write"))
    part = case.chance.choice((str(case.store.data_dir), *FILES[service]))
    plan = Plan(call, errno.ENOSPC, case.chance.randrange(1, 25), case.chance.choice((1, 1, 3, 20)), part)
    case.what += f", {service}: {plan}"
    try:
        await case.start(service=service, plan=plan)
    except EndedEarly as ended:
        case.report.counts["starts refused for lack of space"] += 1
        if ended.code != FAILURE or NO_ROOM not in str(ended):
            raise
        await case.store.kill()
        await case.start()
    await case.load(case.workload(), LOAD_S_MAX)
    case.report.counts["calls without space"] += len(case.faults(service))
    if call == "write" and any(DATA_FILE.search(line) for line in case.faults(service)):
        await case.expect_sealed(service)  # its blocks were reserved: this is a broken disk, not a full disk
        await case.store.kill()
        await case.start()
        await case.check()
    case.expect_alive("commitlog", "indexer")
    if not case.report.wrong:
        await case.check_resumed()
        await case.check()
        case.report.wrong += [
            f"the {name} ended with {code} after SIGTERM"
            for name, code in (await case.store.stop("indexer", "commitlog")).items()
            if code != CLEAN and not case.faults(name)
        ]


async def short_writes(case: FaultCase) -> None:
    """Every write takes only half of its bytes: no service may take that for all of them."""
    service = case.chance.choice(tuple(FILES))
    plan = Plan("write", 0, case.chance.randrange(1, 10), ALWAYS, str(case.store.data_dir))
    case.what += f", {service}: {plan}"
    await case.start(service=service, plan=plan)
    await case.load(case.workload(), LOAD_S_MAX)
    case.report.counts["short writes"] += len(case.faults(service))
    case.expect_alive("commitlog", "indexer")
    await case.store.kill()
    await case.start()
    await case.check()


SCENARIOS: tuple[Callable[[FaultCase], Awaitable[None]], ...] = (
    *(dead_disk, failed_sync, full_disk, no_space_at_a_call),
    *(dead_disk, failed_sync, full_disk, no_space_at_a_call),
    short_writes,
)
