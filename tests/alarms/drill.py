# SPDX-License-Identifier: Apache-2.0
"""Drill: harm, the alarm that it must cause, and the cure that the runbook names."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.alarms.site import Site
from tests.support.reput_up import run

Cure = Callable[[], object]
Harm = Callable[[Site], Cure]
"""Does harm, and returns the cure."""
Opened = Callable[[Path], AbstractContextManager[Site]]


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill on services that `opened` starts and stops."""

    name: str
    alarm: str
    opened: Opened
    harm: Harm
    cure: str
    """Words of the runbook under **Do**, which the drill follows. A command is run as it is written there."""
    allowed: frozenset[str] = frozenset()
    """Other alarms that the harm may cause, too."""
    times: int = 1
    """The durations of all rules are divided by this number: for alarms that look at many minutes."""
    is_harmed_from_start: bool = False
    """Whether the services start in the state of the alarm."""
    is_on_own_disk: bool = False
    """Whether `opened` mounts a small disk, which needs root."""


def reput(*arguments: str) -> None:
    """Run a command to its end. Raises AssertionError if it fails."""
    result = run(*arguments)
    assert result.code == 0, result
