# SPDX-License-Identifier: Apache-2.0
"""Forks: no call runs and no connection is open while this process forks, as gRPC does not survive it otherwise.

Celery's pool forks its processes, also later, when one has ended. Before a fork short calls end, long calls are
cancelled, and connections are closed; after it each process connects anew at its next call.
"""

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Protocol

PATIENCE_S = 10.0
"""How long a fork waits for short calls, and then for cancelled calls."""
SETTLE_S = 0.05
"""gRPC's own threads end the connections within milliseconds."""


class Closable(Protocol):
    """An owner of connections."""

    def drop(self) -> bool:
        """Close the connections, which cancels their calls. Returns whether there were any."""


class Gate:
    """Counts calls, and holds new ones back while the process forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._short_count = self._long_count = 0
        self._is_shut = False
        self._owners: weakref.WeakSet[Closable] = weakref.WeakSet()

    def add(self, owner: Closable) -> None:
        """Let forks close the connections of an owner."""
        with self._changed:
            self._owners.add(owner)

    @contextlib.contextmanager
    def call(self, *, is_long: bool = False) -> Iterator[None]:
        """Count a call while it runs. A long call waits for a message, and may be cancelled."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut)
            self._count(1, is_long=is_long)
        try:
            yield
        finally:
            with self._changed:
                self._count(-1, is_long=is_long)
                self._changed.notify_all()

    def before(self) -> None:
        """Hold new calls back, and close all connections."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: not self._short_count, PATIENCE_S)
            owners = list(self._owners)
        dropped = [owner.drop() for owner in owners]
        if any(dropped):
            with self._changed:
                self._changed.wait_for(lambda: not self._short_count and not self._long_count, PATIENCE_S)
            gc.collect()  # the last references to channels
            time.sleep(SETTLE_S)
        self._changed.acquire()

    def after_in_parent(self) -> None:
        """Let calls run again."""
        self._is_shut = False
        self._changed.notify_all()
        self._changed.release()

    def after_in_child(self) -> None:
        """Begin anew: the other threads are not in this process."""
        self._changed = threading.Condition()
        self._short_count = self._long_count = 0
        self._is_shut = False

    def _count(self, change: int, *, is_long: bool) -> None:
        if is_long:
            self._long_count += change
        else:
            self._short_count += change


GATE = Gate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GATE.before, after_in_parent=GATE.after_in_parent, after_in_child=GATE.after_in_child)
