# SPDX-License-Identifier: Apache-2.0
"""StoppingLoop: a SimulatedLoop whose processes may be stopped for a while, as SIGSTOP does; time goes on meanwhile.

Invariant: nothing of a stopped process runs; when it goes on, all that was due runs first, in the order of its times.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable
from typing import Any

from tests.crash.sim.loop import SimulatedLoop
from tests.crash.sim.process import Process, current_process


class StoppingLoop(SimulatedLoop):
    """A simulated loop whose processes can be stopped in the middle."""

    def __init__(self, chance: random.Random, check_alive: Callable[[], None]) -> None:
        self._stopped: dict[Process, list[Callable[[], None]]] = {}
        super().__init__(chance, check_alive)

    def stop_process(self, process: Process) -> None:
        """Let nothing of a process run from here on."""
        self._stopped.setdefault(process, [])

    def resume_process(self, process: Process) -> None:
        """Let a process continue."""
        for run in self._stopped.pop(process, []):
            super().call_soon(run)

    def is_stopped(self, process: Process) -> bool:
        """Whether a process is stopped."""
        return process in self._stopped

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        handles: list[asyncio.Handle] = []
        context = context or contextvars.copy_context()
        handles.append(super().call_soon(self._guarded(handles, callback, args), context=context))
        return handles[0]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        handles: list[asyncio.TimerHandle] = []
        context = context or contextvars.copy_context()
        handles.append(super().call_at(when, self._guarded(handles, callback, args), context=context))
        return handles[0]

    def _guarded(
        self, handles: list[Any], callback: Callable[..., object], args: tuple[Any, ...]
    ) -> Callable[[], None]:
        def run() -> None:
            process = current_process()
            if process is not None and (due := self._stopped.get(process)) is not None:
                context = contextvars.copy_context()
                due.append(lambda: None if handles[0].cancelled() else context.run(run))
            else:
                callback(*args)

        return run
