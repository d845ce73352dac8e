# SPDX-License-Identifier: Apache-2.0
"""Birthplace: the process where something was made whose threads and connections a forked child does not have."""

import os


class Birthplace:
    """Of a producer, writer or consumer."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this process is the one."""
        return os.getpid() == self._pid

    def check(self, what: str) -> None:
        """Raise RuntimeError in another process, where it would wait for ever."""
        if not self.is_here:
            raise RuntimeError(
                f"this {what} was made in process {self._pid} and does not work in {os.getpid()}, forked from it: "
                "connect, and make it, after the fork"
            )
