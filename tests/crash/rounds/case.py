# SPDX-License-Identifier: Apache-2.0
"""A case: three logs that elect a leader, under load, and round after round of faults, each healed and checked.

A round: start all, load and read, play 1 to 4 faults that overlap, heal, wait until all are together, compare all
promises with the log; then stop all in order, compare the stores with each other, file by file, and verify each (`reput
verify`). The next round begins with the same stores.
"""

import asyncio
import contextlib
import logging
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
from reput.commitlog.v1 import log_service_pb2 as log_pb

from cli.verify.findings import Finding, Report
from cli.verify.store import verify_store
from libs.formats import store_layout
from libs.formats.state import epoch_file
from tests.crash.check import read_log
from tests.crash.live_store import BUG_MARKS
from tests.crash.nursery import Child, EndedEarly, Nursery
from tests.crash.part import CaseReport
from tests.crash.rounds.faults import FAULTS, Scene, draw, heal
from tests.crash.rounds.load import Load
from tests.crash.rounds.machine import Machine
from tests.crash.rounds.messaging import TOPICS as MESSAGING_TOPICS
from tests.crash.rounds.messaging import Messaging
from tests.crash.rounds.network import HARNESS
from tests.crash.rounds.offsets import Offsets
from tests.crash.rounds.promises import Promises
from tests.crash.rounds.readers import reading
from tests.crash.rounds.topics import Topics
from tests.crash.rounds.trio import INDEX_SLOT_COUNT, NotTogether, Trio

ROUND_COUNT = 5
"""Rounds of a seed, all on the same stores."""
FAULT_COUNTS = (1, 2, 2, 3, 4)
BEFORE_S, BETWEEN_S_MAX, AFTER_S = 0.5, 2.0, 0.5
CHECK_COUNT_MAX = 3
LAST_WORDS_COUNT = 12
REPORT = "report.txt"


async def run_case(seed: int, nursery: Nursery) -> CaseReport:
    """Run all rounds of a seed. The first failed round is the last, and its stores are kept."""
    logging.getLogger("reput_client").setLevel(logging.ERROR)  # warnings of clients are usual here
    report = CaseReport(seed)
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix=f"reput-rounds-{seed}-"))
    rounds = None
    try:
        async with Trio(nursery, directory, chance).built() as trio:
            rounds = Rounds(trio, chance, report)
            await rounds.run_all()
    except Exception:  # noqa: BLE001 - whatever it is, the other cases go on
        report.wrong.append(traceback.format_exc())
    finally:
        if rounds is not None:
            report.counts += rounds.counts
        if report.wrong:
            (directory / REPORT).write_text("\n".join(report.wrong))
            report.wrong.append(f"the stores are kept in {directory}, with this report")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return report


class Rounds:
    """The rounds of a case."""

    def __init__(self, trio: Trio, chance: random.Random, report: CaseReport) -> None:
        """Each gets a chance of its own: how often a load draws depends on the machine, and faults are the seed's."""
        self._trio, self._report = trio, report
        self._chance, *others = (random.Random(chance.getrandbits(64)) for _ in range(4))
        self.promises = Promises(trio.is_synchronous, MESSAGING_TOPICS)
        self._load = Load(trio, self.promises, others[0])
        self._messaging = Messaging(trio, others[1])
        self._offsets = Offsets(trio)
        self._topics = Topics(trio, others[2])
        self._story: list[str] = []

    @property
    def counts(self) -> Counter[str]:
        """The counts of all that was done, by kind."""
        machines = self._trio.machines.values()
        return (
            self.promises.counts
            + self._messaging.told()
            + self._offsets.counts
            + Counter(
                {
                    "starts": sum(machine.start_count for machine in machines),
                    "elections": len(self.promises.led_by),
                }
            )
        )

    async def run_all(self) -> None:
        """Run the rounds, until a round goes wrong."""
        for number in range(ROUND_COUNT):
            self._story.append(f"round {number}:")
            try:
                self._report.wrong += await self._run(is_last=number == ROUND_COUNT - 1)
            except (EndedEarly, NotTogether) as error:
                self._report.wrong.append(f"{type(error).__name__}: {error}")
            except Exception:  # noqa: BLE001 - it is told with what led to it
                self._report.wrong.append(traceback.format_exc())
            self._report.wrong += self._bugs()
            self._report.counts["rounds"] += 1
            if self._report.wrong:
                await self._tell()
                return

    async def _run(self, *, is_last: bool) -> list[str]:
        await self._trio.start()
        await self._trio.together()
        async with reading(self._trio, self.promises):
            async with self._load.running(), self._others(is_last=is_last):
                await asyncio.sleep(BEFORE_S)
                await self._play()
                self.promises.wrong += [what for one in self._machines for what in one.ended_wrongly()]
                await heal(self._trio)
                await asyncio.sleep(AFTER_S)
            await self._trio.together()
        wrong = await self._stop_messaging()
        leader, broken = await self._check(is_drained=is_last)
        wrong += broken
        for machine in self._machines:
            wrong += await machine.stop("indexer")
        await self._trio.together(are_indexed=False)  # an Indexer may have shared something until it stopped
        for machine in sorted(self._machines, key=lambda one: one is leader):  # so that no log begins another epoch
            wrong += await machine.stop()
        return wrong + await asyncio.to_thread(self._compare_stores, leader)

    @contextlib.asynccontextmanager
    async def _others(self, *, is_last: bool) -> AsyncIterator[None]:
        """Run the other programs for the length of a block, where readers see only lasting records."""
        if not self._trio.is_synchronous:
            yield
            return
        async with self._topics.running(), self._offsets.running(), self._messaging.running(drains=is_last):
            yield

    async def _stop_messaging(self) -> list[str]:
        """End the services in order that write into the log by themselves. Then only Indexers append."""
        wrong = await self._trio.gateway.stop()
        for machine in self._machines:
            wrong += await machine.stop("delivery")
        if self._trio.is_synchronous:
            wrong += await self._offsets.check() + await self._topics.check()
        return wrong

    async def _play(self) -> None:
        """Play some faults, which overlap. Raises the error that a fault met."""
        once: set[str] = set()
        faults = []
        for name in draw(self._chance, self._chance.choice(FAULT_COUNTS)):
            scene = Scene(self._trio, self.promises, random.Random(self._chance.getrandbits(32)), once)
            faults.append(self._fault(name, self._chance.random() * BETWEEN_S_MAX, scene))
        await asyncio.gather(*faults)

    async def _fault(self, name: str, delay_s: float, scene: Scene) -> None:
        await asyncio.sleep(delay_s)
        self._report.counts[f"faults: {name}"] += 1
        what = await FAULTS[name](scene)
        self._story.append(f"  {what}")

    async def _check(self, *, is_drained: bool) -> tuple[Machine, list[str]]:
        """Compare all promises with the leader's log, when all are together and it stays the leader."""
        for _ in range(CHECK_COUNT_MAX):
            leader = await self._trio.together()
            with contextlib.suppress(grpc.aio.AioRpcError):
                state = await leader.calls.log.GetStatus(log_pb.GetStatusRequest())
                messages = await read_log(leader.calls, 0)
                epochs = epoch_file.decode((leader.data_dir / store_layout.EPOCHS).read_bytes())
                wrong = self.promises.check(messages, epochs, state.max_physical_offset)
                return leader, wrong + self._messaging.check(messages, is_drained=is_drained)
        raise NotTogether(f"no leader could be read to the end, {CHECK_COUNT_MAX} times:\n{await self._trio.told()}")

    def _compare_stores(self, leader: Machine) -> list[str]:
        """Verify each store by itself, and compare the followers' stores with the leader's.

        Their processes have stopped.
        """
        wrong = []
        for machine in self._machines:
            against = leader.data_dir if machine is not leader else None
            found: list[Finding] = []
            summary = verify_store(
                machine.data_dir,
                Report(show=found.append, limit=10),
                index_slot_count=INDEX_SLOT_COUNT,
                against=against,
            )
            wrong += [f"reput verify of {machine.name}: {one}" for one in found if one.severity != "note"]
            if against is not None:
                self._report.counts["MiB compared byte by byte"] += summary.compared_bytes >> 20
                self._report.counts["stores compared with the leader's"] += 1
                wrong += differences(machine.data_dir, against)
        return wrong

    @property
    def _machines(self) -> list[Machine]:
        return list(self._trio.machines.values())

    def _bugs(self) -> list[str]:
        """Lines of the services' logs that only a bug writes."""
        return [
            f"{child.service} of {name} says: {line[:1500]}"
            for name, children in self._children().items()
            for child in children
            for line in child.lines
            if any(mark in line for mark in BUG_MARKS)
        ]

    def _children(self) -> dict[str, list[Child]]:
        """All processes that were started, by where they are."""
        return {machine.name: machine.children for machine in self._machines} | {HARNESS: self._trio.gateway.children}

    async def _tell(self) -> None:
        """Report the story of a violation and the last lines of all processes. Then the stores are kept."""
        self._report.wrong.append(f"{self._trio}\n" + "\n".join(self._story))
        for name, children in self._children().items():
            for child in children[-3:]:
                lines = "".join(f"{line.strip():.400}\n" for line in child.lines[-LAST_WORDS_COUNT:])
                self._report.wrong.append(f"--- {child.service} of {name}\n{lines}")
        for machine in self._machines:
            await machine.kill()
            with contextlib.suppress(OSError, shutil.Error):
                await asyncio.to_thread(machine.keep)


def differences(one: Path, other: Path) -> list[str]:
    """Return the segments of two stores that are not the same bytes. A segment without bytes may be missing."""
    names = {path.name for data_dir in (one, other) for path in (data_dir / store_layout.COMMIT_LOG).glob("[0-9]*")}
    contents = {name: [_content(data_dir, name) for data_dir in (one, other)] for name in names}
    return [f"segment {name} of {one} and {other} differ" for name, (left, right) in contents.items() if left != right]


def _content(data_dir: Path, name: str) -> bytes:
    path = data_dir / store_layout.COMMIT_LOG / name
    return path.read_bytes().rstrip(b"\0") if path.exists() else b""
