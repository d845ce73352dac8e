# SPDX-License-Identifier: Apache-2.0
"""Birthplace: the process that made an object. A forked child does not have its threads and connections."""

import os
import weakref


class Birthplace:
    """The process that made a producer, writer or consumer."""

    def __init__(self) -> None:
        self.is_here = True
        """Whether the object was made in this process."""
        self._pid = os.getpid()
        _birthplaces.add(self)

    def check(self, what: str) -> None:
        """Raise RuntimeError in another process, where the object would wait for ever."""
        if not self.is_here:
            raise RuntimeError(
                f"this {what} was made in process {self._pid} and does not work in {os.getpid()}, forked from it: "
                "connect, and make it, after the fork"
            )


_birthplaces: "weakref.WeakSet[Birthplace]" = weakref.WeakSet()


def _leave() -> None:
    """Tell all objects that they are in a child of their process."""
    for birthplace in list(_birthplaces):
        birthplace.is_here = False


if hasattr(os, "register_at_fork"):  # asking for the number of the process before each message would be a system call
    os.register_at_fork(after_in_child=_leave)
