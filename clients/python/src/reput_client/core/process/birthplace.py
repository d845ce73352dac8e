# SPDX-License-Identifier: Apache-2.0
"""Birthplace: the process that made an object. A forked child does not have its threads and connections."""

import os


class Birthplace:
    """The process that made a producer, writer or consumer."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the object was made in this process."""
        return os.getpid() == self._pid

    def check(self, what: str) -> None:
        """Raise RuntimeError in another process, where the object would wait for ever."""
        if not self.is_here:
            raise RuntimeError(
                f"this {what} was made in process {self._pid} and does not work in {os.getpid()}, forked from it: "
                "connect, and make it, after the fork"
            )
