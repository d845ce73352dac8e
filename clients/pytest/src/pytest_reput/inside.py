# SPDX-License-Identifier: Apache-2.0
"""Inside: the services of a store in a thread of this process, over a disk in memory and a clock that can be moved.

The thread runs an event loop with all services, as `running` of libs/runtime/process.py runs each. They listen on
loopback and call each other as in production. A crash takes the disk as it is synced, and leaves the old services to
end on the old disk.
Loaded by `reput_server.embedded.load`: `libs` and `services` are the server's, also where the test's project has
packages of these names.
Callers: any thread, one at a time.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from libs.machine.clock import SystemClock
from libs.machine.machine import Machine
from libs.machine.testing.memory_fs import MemoryFs
from libs.runtime.process import running
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from pytest_reput import refusals
from services.commitlog import bootstrap as commitlog
from services.delivery import bootstrap as delivery
from services.indexer import bootstrap as indexer
from services.janitor import bootstrap as janitor

HOST = "127.0.0.1"
DATA_DIR = Path("/store")
START_S, STOP_S = 30.0, 60.0
SKIP_S = 1.0
"""How much a moved clock shortens the waits of the event loop: the services look at the clock at least each second."""
HURRY_S = 0.02
"""How long the start or stop of a service may take before a wait in it is shortened."""

PEERS: Mapping[str, tuple[str, ...]] = {
    "commitlog": (),
    "indexer": ("commitlog",),
    "delivery": ("commitlog", "indexer"),
    "janitor": ("commitlog", "indexer"),
}
BOOTSTRAPS: Mapping[str, ModuleType] = {
    "commitlog": commitlog, "indexer": indexer, "delivery": delivery, "janitor": janitor
}  # fmt: skip
"""The services in the order of their start."""

SMALL: Mapping[str, Mapping[str, Any]] = {
    "commitlog": {
        "data_dir": DATA_DIR, "segment_size_bytes": 1 << 20, "preallocate": False, "disk_ballast_bytes": 0,
        "disk_reserve_bytes": 0, "new_queues_per_s_max": 0,
    },
    "indexer": {
        "data_dir": DATA_DIR, "index_slot_count": 1_024, "index_entry_capacity": 4_096,
        "queue_file_size_bytes": 20 * 1_024, "disk_ballast_bytes": 0, "log_silence_ms": 0,
    },
    "delivery": {},
    "janitor": {"data_dir": DATA_DIR},
}  # fmt: skip
"""Settings that differ from the services' own: small files, and no refusal because a moved clock makes a log silent."""

T = TypeVar("T")


class MovedClock:
    """The machine's clock plus an offset, wall and monotonic time alike, as after a sleep of the machine."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._offset_ms = 0

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._clock.now_ms() + self._offset_ms

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self._clock.monotonic_s() + self._offset_ms / 1000

    def advance(self, duration_ms: int) -> None:
        """Move it ahead."""
        self._offset_ms += duration_ms


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers can be made due earlier."""

    skipped_s = 0.0

    def time(self) -> float:
        """Return the time of the loop's timers."""
        return super().time() + self.skipped_s

    def skip(self, seconds: float) -> None:
        """Shorten all waits of this moment. Callers: the loop's thread."""
        self.skipped_s += seconds


class Inside:
    """A store in this process. `settings` has settings of the services' engines, by service."""

    def __init__(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        unknown = settings.keys() - SMALL.keys()
        if unknown:
            raise ValueError(f"there is no service {', '.join(sorted(unknown))}, only {', '.join(SMALL)}")
        self.clock = MovedClock()
        self._engines = {name: {**small, **settings.get(name, {})} for name, small in SMALL.items()}
        self._disk = MemoryFs()
        self._ports = dict.fromkeys(SMALL, 0)
        self._services: dict[str, Any] = {}
        self._stopping: asyncio.Event | None = None
        self._serving: Future[None] | None = None
        self._loop = SkippingLoop()
        self._thread = threading.Thread(target=self._run, name="reput", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the services were started and not stopped."""
        return self._serving is not None

    def start(self) -> dict[str, str]:
        """Start the services, and return their addresses. Raises the error that prevents it."""
        assert self._serving is None, "the store runs already"
        ready: Future[None] = Future()
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(ready), self._loop)
        self._serving.add_done_callback(lambda done: _copy_failure(done, ready))
        try:
            ready.result(START_S)
        except BaseException:
            self._serving = None
            raise
        return {name: f"{HOST}:{port}" for name, port in self._ports.items()}

    def advance(self, duration_ms: int) -> None:
        """Move the clock, and let waiting loops look at it."""
        self.clock.advance(duration_ms)
        self._call(self._skip(min(duration_ms / 1000, SKIP_S)))

    def fail_next(self, call: str, reason: str, **how: Any) -> None:
        """See `MemoryReput.fail_next`."""
        refused = refusals.refusal(call, reason, **how)
        self._call(_do(lambda: refusals.plan(refused)))

    def stop(self) -> None:
        """Stop the services in order. Raises the error of a service that failed."""
        serving, self._serving = self._serving, None
        if serving is None:
            return
        self._loop.call_soon_threadsafe(self._end)
        serving.result(STOP_S)

    def kill(self) -> None:
        """End the services, and keep the synced state of their disk."""
        if self._serving is None:
            return
        self._call(self._cut())
        with contextlib.suppress(Exception):  # they end on the old disk
            self.stop()

    def close(self) -> None:
        """Stop the services and the thread. May be repeated."""
        try:
            self.stop()
        finally:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(STOP_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S)

    def _end(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    def _hurry(self) -> None:
        """Shorten a wait of the start or stop that begins now: the Indexer looks each second for state in the log."""
        self._loop.call_later(HURRY_S, self._loop.skip, SKIP_S)

    async def _serve(self, ready: Future[None]) -> None:
        self._stopping = asyncio.Event()
        machine = Machine(self._disk, self.clock)
        async with contextlib.AsyncExitStack() as running_services:
            for name, bootstrap in BOOTSTRAPS.items():
                service = await running_services.enter_async_context(
                    running(bootstrap.Service, self._settings_of(name, bootstrap), machine)
                )
                self._services[name], self._ports[name] = service, service.server.port
                if name == "indexer":
                    running_services.callback(self._hurry)
            self._hurry()
            for service in self._services.values():
                await service.until_complete()
            ready.set_result(None)
            await self._stopping.wait()
            refusals.forget_all()

    def _settings_of(self, name: str, bootstrap: ModuleType) -> Any:
        default = bootstrap.Settings()
        return bootstrap.Settings(
            engine=type(default.engine)(**self._engines[name]),
            server=ServerConfig(port=self._ports[name], drain_timeout_ms=2_000),
            telemetry=TelemetryConfig(metrics_port=0),
            **{peer: PeerConfig(target=f"{HOST}:{self._ports[peer]}", timeout_ms=30_000) for peer in PEERS[name]},
        )

    async def _skip(self, seconds: float) -> None:
        self._loop.skip(seconds)

    async def _cut(self) -> None:
        """Answer no call any more, then take the disk."""
        await asyncio.gather(*(service.server.stop(0) for service in self._services.values()))
        self._disk = self._disk.after_crash()


async def _do(function: Any) -> None:
    function()


def _copy_failure(done: "Future[None]", ready: "Future[None]") -> None:
    if not ready.done() and (error := done.exception()) is not None:
        ready.set_exception(error)
