# SPDX-License-Identifier: Apache-2.0
"""Relay and AsyncRelay: send the rows of an outbox to Reput, from a thread or an asyncio task of any program."""

import asyncio
import contextlib
import select
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from reput_client import Client

from reput_outbox.core.cycle import LOG, Cycle, LookUp, Send, Step, Transact
from reput_outbox.core.errors import DatabaseTrouble, OutboxError
from reput_outbox.core.metrics import RelayMetrics
from reput_outbox.core.sender import Sender, connect
from reput_outbox.core.settings import RelaySettings
from reput_outbox.core.table import Table

T = TypeVar("T")
Caller: TypeAlias = Callable[..., Awaitable[Any]]
LISTEN_AGAIN_S = 10.0


class Listener(Protocol):
    """A connection on which the database tells that rows were added."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""

    def take(self) -> None:
        """Take what was told. Raises DatabaseTrouble."""

    def close(self) -> None:
        """Close the connection."""


class Database(Protocol):
    """The database of an outbox."""

    def transact(self, work: Callable[[Table], T]) -> T:
        """Run `work` in a transaction. Raises DatabaseTrouble."""

    def listen(self) -> Listener | None:
        """Return a listener, None if the database has no notifications. Raises DatabaseTrouble."""

    def close(self) -> None:
        """Close the connection of the present thread, if the thread has one of its own."""


class AsyncDatabase(Protocol):
    """The database of an outbox, for asyncio."""

    async def transact(self, work: Callable[[Table], T]) -> T:
        """Run `work` in a transaction. Raises DatabaseTrouble."""

    def listen(self) -> Listener | None:
        """Return a listener, None if the database has no notifications. Raises DatabaseTrouble."""


class Waiter:
    """Waits for a time, a notification, or the end of the relay, whichever comes first."""

    def __init__(self, listen: Callable[[], Listener | None]) -> None:
        self._listen = listen
        self._listener: Listener | None = None
        self._listen_s = time.monotonic()
        self._wake, self._woken = socket.socketpair()
        self.is_stopping = False

    def hears(self) -> bool:
        """Return whether the database tells of new rows."""
        return self._listener is not None

    def stop(self) -> None:
        """End the present wait and all later waits."""
        self.is_stopping = True
        with contextlib.suppress(OSError):
            self._wake.send(b"x")

    def wait(self, seconds: float) -> None:
        """Wait. A connection that is new may have missed rows, so the caller looks again at once."""
        if self._listener is None and time.monotonic() >= self._listen_s and self._connect():
            return
        watched: list[Any] = [self._woken, *([self._listener] if self._listener is not None else [])]
        try:
            readable, _, _ = select.select(watched, [], [], 0 if self.is_stopping else seconds)
            if self._listener is not None and self._listener in readable:
                self._listener.take()
        except (DatabaseTrouble, OSError, ValueError):  # the connection broke: the relay polls until the next attempt
            self._forget()

    def close(self) -> None:
        """Close the connection and the sockets."""
        self._forget()
        self._wake.close()
        self._woken.close()

    def _connect(self) -> bool:
        """Listen. Returns whether there is a connection now."""
        self._listen_s = time.monotonic() + LISTEN_AGAIN_S
        try:
            self._listener = self._listen()
        except DatabaseTrouble as error:
            LOG.warning("outbox relay polls, because it can't listen for new rows: %s", error)
        return self._listener is not None

    def _forget(self) -> None:
        listener, self._listener = self._listener, None
        self._listen_s = time.monotonic() + 1
        if listener is not None:
            with contextlib.suppress(DatabaseTrouble, OSError):
                listener.close()


class _Driver:
    """Does the steps of a cycle, and gives each result or error back."""

    def __init__(self, listen: Callable[[], Listener | None], settings: RelaySettings | None, sender: Sender) -> None:
        self._sender, self._waiter = sender, Waiter(listen)
        self._cycle = Cycle(settings or RelaySettings(), lambda: self._waiter.is_stopping, hears=self._waiter.hears)

    @property
    def metrics(self) -> RelayMetrics:
        """The counters of this relay."""
        return self._cycle.metrics

    async def _drive(self, transact: Caller, call: Caller) -> None:
        """Do all steps: `transact` runs work in a transaction, and `call` a function that waits."""
        steps = self._cycle.steps()
        try:
            step: Step = next(steps)
            while True:
                try:
                    result = await self._do(step, transact, call)
                except Exception as error:  # noqa: BLE001 - the steps know which errors they expect
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration:
            return

    def _do(self, step: Step, transact: Caller, call: Caller) -> Awaitable[Any]:
        if isinstance(step, Transact):
            return transact(step.work)
        if isinstance(step, Send):
            return call(self._sender.send, step.writer_id, step.number, step.rows)
        if isinstance(step, LookUp):
            return call(self._sender.stored, step.rows)
        return call(self._waiter.wait, step.seconds)


class Relay(_Driver):
    """Sends the rows of an outbox, in the caller's thread by `run`, or in a thread of its own by `start`."""

    def __init__(
        self,
        database: Database,
        settings: RelaySettings | None = None,
        *,
        connect: Callable[[], Client] = connect,
    ) -> None:
        super().__init__(database.listen, settings, Sender(connect))
        self._database = database
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Send rows until `stop` is called. A relay is run once."""

        async def call(function: Callable[..., Any], *arguments: Any) -> Any:
            return function(*arguments)

        try:
            with contextlib.suppress(
                StopIteration
            ):  # the steps wait in calls of this thread, so there is no event loop
                self._drive(partial(call, self._database.transact), call).send(None)
        finally:
            self._sender.close()
            self._waiter.close()
            self._database.close()

    def start(self) -> Self:
        """Run in a thread of its own."""
        if self._thread is not None:
            raise OutboxError("the relay was started before")
        self._thread = threading.Thread(target=self.run, name="reput-outbox-relay", daemon=True)
        self._thread.start()
        return self

    def ask_to_stop(self) -> None:
        """End the relay after the batch that is under way. May be called from any thread and a signal's handler."""
        self._waiter.stop()

    def stop(self, timeout_s: float | None = None) -> None:
        """End the relay like `ask_to_stop`, and wait for its thread."""
        self.ask_to_stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class AsyncRelay(_Driver):
    """Sends the rows of an outbox from an asyncio task. Calls to the store are made in a thread of the relay."""

    def __init__(
        self,
        database: AsyncDatabase,
        settings: RelaySettings | None = None,
        *,
        connect: Callable[[], Client] = connect,
    ) -> None:
        super().__init__(database.listen, settings, Sender(connect))
        self._database = database

    def stop(self) -> None:
        """End `run` after the batch that is under way."""
        self._waiter.stop()

    async def run(self) -> None:
        """Send rows until `stop` is called or the task is cancelled. A relay is run once."""
        with ThreadPoolExecutor(1, thread_name_prefix="reput-outbox-relay") as thread:
            try:
                await self._drive(self._database.transact, partial(asyncio.get_running_loop().run_in_executor, thread))
            except asyncio.CancelledError:
                self._waiter.stop()
                with contextlib.suppress(DatabaseTrouble):
                    await self._database.transact(lambda table: table.release(self._cycle.me))
                raise
            finally:
                thread.submit(self._sender.close)
                thread.submit(self._waiter.close)


def run_until_signal(relay: Relay) -> None:
    """Run a relay in the main thread until SIGINT or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: relay.ask_to_stop())
    relay.run()
