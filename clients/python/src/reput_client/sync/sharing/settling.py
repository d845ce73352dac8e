# SPDX-License-Identifier: Apache-2.0
"""Settler: settles messages of many threads by few calls."""

import threading
from collections import deque
from collections.abc import Sequence

from reput_client.core.errors import InvalidArgumentError, ReputError
from reput_client.core.sharing import calls
from reput_client.core.sharing.settling import CALL_COUNT_MAX, PATIENCE_S, Settlement, take
from reput_client.sync.channels import Channels

Errors = Sequence[ReputError | None]
"""An error or None for each entry."""


class _Settlement(Settlement):
    """The settlement of a thread."""

    __slots__ = ("errors", "failure", "has_left", "is_taken", "leads", "woken")

    def __init__(self, entries: Sequence[bytes]) -> None:
        super().__init__(entries)
        self.errors: Errors | None = None
        self.failure: Exception | None = None
        self.is_taken = self.leads = self.has_left = False
        """Whether a call has the entries; whether the thread sends calls; whether the thread does not wait any more."""
        self.woken = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self.errors is not None or self.failure is not None

    @property
    def is_given_up(self) -> bool:
        """Whether the thread was interrupted."""
        return self.has_left


class Settler:
    """Settlements of several threads share a call when they wait for calls that are under way.

    A thread that finds fewer than CALL_COUNT_MAX calls leads: it sends a call with all that waits. When it has its own
    outcome, the thread that waits longest leads.
    """

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._lock = threading.Lock()
        self._waiting: deque[_Settlement] = deque()
        self._leader_count = 0

    def settle(self, entries: Sequence[bytes]) -> Errors:
        """Return an error or None for each entry, as soon as the call that has them is answered.

        Raises the call's ReputError.
        """
        own = _Settlement(entries)
        with self._lock:
            self._waiting.append(own)
            if self._leader_count < CALL_COUNT_MAX:
                self._leader_count += 1
                own.leads = True
        try:
            while not own.is_done:
                if own.leads:
                    self._lead(own)
                else:
                    self._wait(own)
        finally:
            own.has_left = True
            if own.leads:
                self._hand_on(own)
        if own.failure is not None:
            raise own.failure
        return own.errors or ()

    def _wait(self, own: _Settlement) -> None:
        """Wait for the outcome or for the lead. Take the lead if no call has the entries for too long."""
        is_woken = own.woken.wait(None if own.is_taken else PATIENCE_S)
        with self._lock:
            if is_woken:
                own.woken.clear()
            elif not own.is_taken and not own.leads:
                self._leader_count += 1
                own.leads = True

    def _lead(self, own: _Settlement) -> None:
        """Send calls until a call has the own entries, then hand the lead on."""
        while not own.is_taken:
            with self._lock:
                some = take(self._waiting)
                for one in some:
                    one.is_taken = True
            self._send(some)
        self._hand_on(own)

    def _hand_on(self, own: _Settlement) -> None:
        """Let the thread that waits longest lead, unless more threads lead than needed."""
        with self._lock:
            own.leads = False
            heirs = (one for one in self._waiting if not (one.leads or one.has_left))
            heir = next(heirs, None) if self._leader_count <= CALL_COUNT_MAX else None
            if heir is None:
                self._leader_count -= 1
            else:
                heir.leads = True
                heir.woken.set()

    def _send(self, some: Sequence[_Settlement]) -> None:
        """Settle the entries by a single call, and wake their threads. After an interrupt other threads repeat it."""
        try:
            self._call(some)
        except BaseException:
            with self._lock:
                left = [one for one in some if not one.is_done]
                self._waiting.extendleft(reversed(left))
                for one in left:
                    one.is_taken = False
                    one.woken.set()
            raise

    def _call(self, some: Sequence[_Settlement]) -> None:
        try:
            errors = self._channels.run(calls.settle([entry for one in some for entry in one.entries]))
        except InvalidArgumentError as error:  # because of a single entry, and nothing was done
            if len(some) == 1:
                self._fail(some, error)
            else:
                for one in some:
                    self._call([one])
        except Exception as error:  # noqa: BLE001 - the callers must get any error
            self._fail(some, error)
        else:
            first = 0
            for one in some:
                self._end(one, errors[first : first + len(one.entries)])
                first += len(one.entries)

    def _fail(self, some: Sequence[_Settlement], error: Exception) -> None:
        for one in some:
            one.failure = error
            self._wake(one)

    def _end(self, one: _Settlement, errors: Errors) -> None:
        one.errors = errors
        self._wake(one)

    def _wake(self, one: _Settlement) -> None:
        """Wake a thread whose outcome is set. With the lock, so that the thread does not clear the flag unseen."""
        with self._lock:
            one.woken.set()
