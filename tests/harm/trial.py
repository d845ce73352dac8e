# SPDX-License-Identifier: Apache-2.0
"""A trial: a copy of a store, a harm to a file at a moment, and everything asked before and after a restart.

While services run: harm, ask, append, ask, restart, ask.
After a stop or a kill: harm, start, ask, append, restart, ask.
A trial depends on its seed, file, harm and moment alone, as far as chance is ours to choose.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import DELIVERY_TOPIC
from tests.crash.live_store import LiveStore
from tests.crash.nursery import Child, EndedEarly, Nursery
from tests.harm.expected import ORDERS, Expected, sent
from tests.harm.harms import HARMS
from tests.harm.judge import End, Facts
from tests.harm.look import Questions, refusal_of
from tests.harm.template import KILLED, SIZES, STOP_ORDER, STOPPED, Template, append, commit, start

RUNNING = "running"
MOMENTS = (RUNNING, KILLED, STOPPED)
NOTHING = "nothing"
"""The harm of a trial that must be whole, and shows which words an unharmed store's services write."""
DATED = "index/"
TRIAL_S_MAX = 180.0
APPENDED = range(1_001, 1_030)
"""Numbers of the batch after the harm."""
DELIVERY_FILES = (
    *("config/delayOffset", "config/consumerOffset", "consumequeue/later/"),
    *(f"consumequeue/{topic}/" for topic in (SCHEDULE_TOPIC, DELIVERY_TOPIC)),
)
"""Files for which a message of the batch is to be delivered later. That takes a second, so other files have none."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The harm, the file and the moment."""

    file: str
    harm: str
    moment: str
    label: str = ""
    """The same file in each run: index files have their time for a name, and here a number."""

    @property
    def name(self) -> str:
        """The name by which a trial is chosen and repeated."""
        return f"{self.moment}:{self.harm}:{self.label}"


def trials_of(templates: Mapping[str, Template]) -> list[Trial]:
    """All trials: every file that a moment has, each harm. A running store has the files of both templates."""
    files = {moment: template.files for moment, template in templates.items()}
    files[RUNNING] = sorted({*files[STOPPED], *files[KILLED]})
    labels = _labels(sorted({file for names in files.values() for file in names}))
    return [Trial(file, harm, moment, labels[file]) for moment in MOMENTS for file in files[moment] for harm in HARMS]


async def run_trial(
    trials: Sequence[Trial], templates: Mapping[str, Template], seed: int, index: int, nursery: Nursery
) -> tuple[int, Facts | None]:
    """Run the trial of an index; no facts if its file is not there at its moment."""
    trial = trials[index]
    template = templates[KILLED if trial.moment == KILLED else STOPPED]
    directory = Path(tempfile.mkdtemp(prefix="reput-harm-"))
    shutil.copytree(template.data_dir, directory / "store")
    course = Course(trial, LiveStore(nursery, directory / "store", SIZES), template.expected.copy(), seed)
    try:
        async with asyncio.timeout(TRIAL_S_MAX):
            return index, await course.run()
    except Exception:  # noqa: BLE001 - whatever it is, the other trials go on
        course.facts.trouble.append(traceback.format_exc())
        return index, course.facts
    finally:
        await course.end()
        shutil.rmtree(directory)


def _labels(files: Sequence[str]) -> dict[str, str]:
    """Names that stay from run to run."""
    dated = [file for file in files if file.startswith(DATED)]
    return {file: f"{DATED}{dated.index(file) + 1}" if file in dated else file for file in files}


class Course:
    """The course of a trial, which fills in its facts."""

    def __init__(self, trial: Trial, store: LiveStore, expected: Expected, seed: int) -> None:
        self.facts = Facts(trial.file, trial.harm, trial.moment)
        self._trial = trial
        self._store = store
        self._expected = expected
        self._chance = random.Random(f"{seed} {trial.name}")
        self._children: list[Child] = []
        self._line_counts: dict[Child, int] = {}
        self._is_down = False

    async def run(self) -> Facts | None:
        """Go through it."""
        if self._trial.moment == RUNNING:
            await start(self._store)
            await Questions(self._store).wait_settled(self._expected)
            self._note_children()
            self._line_counts = {child: len(child.lines) for child in self._children}
        if not self._harm():
            return None
        if self._trial.moment == RUNNING:
            await self._look("right after it")
        else:
            await self._start()
            await self._look("after the start")
        await self._append()
        if self._trial.moment == RUNNING:
            await self._look("after an append")
        await self._stop()
        await self._start()
        await self._look("after a restart")
        return self.facts

    async def end(self) -> None:
        """Kill running services, and record their output."""
        self._note_own_ends()
        await self._store.close()
        self._note_children()
        for child in self._children:
            kept = child.lines[self._line_counts.get(child, 0) :]
            self.facts.lines += [(child.service, line) for line in kept]

    def _harm(self) -> bool:
        if self._trial.harm == NOTHING:
            return True
        path = self._store.data_dir / self._trial.file
        if not path.is_file():
            return False
        HARMS[self._trial.harm](path, self._chance)
        return True

    async def _start(self) -> None:
        """Start all services. A service that refuses is recorded, and nothing more is asked."""
        if self._is_down:
            return
        try:
            await start(self._store)
        except EndedEarly as ended:
            self._is_down = True
            service = next(name for name in reversed(STOP_ORDER) if self._store.children[name].ended.done())
            self.facts.ends.append(End(service, ended.code))
        except TimeoutError:
            self._is_down = True
            self.facts.trouble.append("a service did not come to serve")
        self._note_children()

    async def _look(self, when: str) -> None:
        if not self._is_down:
            self.facts.looks.append(await Questions(self._store).look(when, self._expected))

    async def _append(self) -> None:
        """Append a batch and commit an offset, which must stay if they are acknowledged."""
        if self._is_down:
            return
        waits = self._trial.file.startswith(DELIVERY_FILES)
        numbers = [number for number in APPENDED if waits or not sent(number).is_delayed]
        for act in (
            append(self._store, self._expected, numbers),
            commit(self._store, self._expected, ORDERS, 0, 11),
        ):
            try:
                await act
            except grpc.aio.AioRpcError as error:
                self.facts.refusals.append(refusal_of(error))

    async def _stop(self) -> None:
        """Stop running services, in order."""
        self._note_own_ends()
        running = [name for name in STOP_ORDER if self._store.is_running(name)]
        codes = await self._store.stop(*running)
        self.facts.ends += [End(name, code, was_asked=True) for name, code in codes.items()]

    def _note_own_ends(self) -> None:
        """Record services that have ended without a request."""
        if self._is_down:
            return
        noted = [end.service for end in self.facts.ends if not end.was_asked]
        for name, child in self._store.children.items():
            if child.ended.done() and name not in noted:
                self.facts.ends.append(End(name, child.ended.result()))

    def _note_children(self) -> None:
        self._children += [child for child in self._store.children.values() if child not in self._children]
