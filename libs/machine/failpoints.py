# SPDX-License-Identifier: Apache-2.0
"""Failpoints: named places at steps of durability. A test can kill, fail or delay the process there.

Production code calls `failpoint("segment.before_sync")`. While nothing is armed, this costs a check of an empty dict.
Names come in before/after pairs. Arm them with `arm`, or for a whole process with the text of REPUT_FAILPOINTS, which
the process shell passes to `arm_text`: `name=action` joined by `;`, where action is `kill`, `raise` or `sleep:<ms>`.
`@<n>` after an action means: only at the n-th time (`segment.before_sync=kill@3`).
"""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator

Action = Callable[[], None]

_armed: dict[str, Action] = {}


class FailpointRaised(OSError):
    """The error of the action `raise`: an input/output error, like the error of a broken disk."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EIO, f"failpoint {name}")


def failpoint(name: str) -> None:
    """Run the action that is armed under this name, if any."""
    if _armed:
        action = _armed.get(name)
        if action is not None:
            action()


def arm(name: str, action: Action) -> None:
    """Run `action` each time that a thread passes the failpoint, in this thread."""
    _armed[name] = action


def disarm(name: str) -> None:
    """Disarm a failpoint."""
    _armed.pop(name, None)


def disarm_all() -> None:
    """Disarm all failpoints."""
    _armed.clear()


@contextlib.contextmanager
def armed(name: str, action: Action | str) -> Iterator[None]:
    """Arm a failpoint for the time of a `with` block. The action may be text such as `raise`."""
    arm(name, parse_action(name, action) if isinstance(action, str) else action)
    try:
        yield
    finally:
        disarm(name)


def arm_text(text: str) -> None:
    """Arm every failpoint in the text of REPUT_FAILPOINTS. Raises ValueError, which names the wrong part."""
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, separator, action = part.partition("=")
        if not separator or not name:
            raise ValueError(f"failpoint {part!r}: expected name=action")
        arm(name, parse_action(name, action))


def parse_action(name: str, text: str) -> Action:
    """Turn `kill`, `raise` or `sleep:<ms>`, each with an optional `@<n>`, into an action. Raises ValueError."""
    verb, _, ordinal = text.partition("@")
    if ordinal and not (ordinal.isdecimal() and int(ordinal) > 0):
        raise ValueError(f"failpoint {name}: {ordinal!r} is not a count")
    if verb == "kill":
        action = _kill
    elif verb == "raise":
        action = _raiser(name)
    elif verb.startswith("sleep:") and verb[6:].isdecimal():
        action = _sleeper(int(verb[6:]))
    else:
        raise ValueError(f"failpoint {name}: unknown action {text!r}; known are kill, raise and sleep:<ms>")
    return _only_at(int(ordinal), action) if ordinal else action


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raiser(name: str) -> Action:
    def act() -> None:
        raise FailpointRaised(name)

    return act


def _sleeper(duration_ms: int) -> Action:
    return lambda: time.sleep(duration_ms / 1000)


def _only_at(ordinal: int, action: Action) -> Action:
    passed_count = 0

    def act() -> None:
        nonlocal passed_count
        passed_count += 1
        if passed_count == ordinal:
            action()

    return act
