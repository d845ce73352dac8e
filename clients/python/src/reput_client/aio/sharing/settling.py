# SPDX-License-Identifier: Apache-2.0
"""AsyncSettler: settles messages of many callers by few calls."""

import asyncio
from collections import deque
from collections.abc import Sequence

from reput_client.aio.channels import AsyncChannels
from reput_client.core.errors import InvalidArgumentError, ReputError
from reput_client.core.sharing import calls
from reput_client.core.sharing.settling import CALL_COUNT_MAX, PATIENCE_S, Settlement, take

Errors = Sequence[ReputError | None]
"""An error or None for each entry."""


class _Settlement(Settlement):
    """The settlement of a caller that waits for a future."""

    __slots__ = ("errors",)

    def __init__(self, entries: Sequence[bytes]) -> None:
        super().__init__(entries)
        self.errors: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

    @property
    def is_given_up(self) -> bool:
        """Whether the caller was cancelled."""
        return self.errors.done()


class AsyncSettler:
    """Settlements of a turn of the event loop share a call. So do settlements that wait while calls are under way."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels
        self._waiting: deque[_Settlement] = deque()
        self._call_count = 0
        """Calls that are under way or about to begin."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def settle(self, entries: Sequence[bytes]) -> Errors:
        """Return an error or None for each entry, as soon as the call that has them is answered.

        Raises the call's ReputError. The entries of a cancelled caller are not sent, unless their call has begun.
        """
        settlement = _Settlement(entries)
        self._waiting.append(settlement)
        if self._call_count >= CALL_COUNT_MAX:
            self._be_patient()
        elif len(self._waiting) == 1:  # otherwise a call that is about to begin takes this settlement, too
            self._start()
        return await settlement.errors

    def _start(self) -> None:
        self._call_count += 1
        task = asyncio.create_task(self._send_waiting(), name="settle")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _be_patient(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._start_another)

    def _start_another(self) -> None:
        """Start a call beyond the limit, if settlements still wait."""
        self._timer = None
        if self._waiting:
            self._start()

    async def _send_waiting(self) -> None:
        try:
            while some := take(self._waiting):
                if self._waiting and self._call_count < CALL_COUNT_MAX:
                    self._start()
                await self._send(some)
                if self._call_count > CALL_COUNT_MAX:
                    break
        finally:
            self._call_count -= 1
            if self._waiting:
                self._be_patient()

    async def _send(self, some: Sequence[_Settlement]) -> None:
        """Settle the entries by a single call, and end each caller's wait."""
        try:
            errors = await self._channels.run(calls.settle([entry for one in some for entry in one.entries]))
        except InvalidArgumentError as error:  # because of a single entry, and nothing was done
            if len(some) == 1:
                _fail(some, error)
            else:
                for one in some:
                    await self._send([one])
        except Exception as error:  # noqa: BLE001 - the callers must get any error
            _fail(some, error)
        except BaseException:
            for one in some:
                one.errors.cancel()
            raise
        else:
            first = 0
            for one in some:
                if not one.errors.done():  # otherwise its caller was cancelled
                    one.errors.set_result(errors[first : first + len(one.entries)])
                first += len(one.entries)


def _fail(some: Sequence[_Settlement], error: Exception) -> None:
    for one in some:
        if not one.errors.done():
            one.errors.set_exception(error)
