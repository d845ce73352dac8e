# SPDX-License-Identifier: Apache-2.0
"""Trail: logs each call that changes shared state, such as topics and groups, and calls that the Guard refused.

A line has the request, the address of the caller, and the outcome. Calls that append or acknowledge messages are not
logged: they are many, and the store records them. Calls that change nothing (`dry_run`) are not logged either.
Lines are bounded, so that a greedy caller can't fill the disk. Lines of operators have a separate bound, which clients
can't use up, and so have refusals. A line gives the number of lines that were left out before it.
Callers: a single event loop.
"""

import logging
import time
from collections.abc import Callable

from google.protobuf import text_format
from google.protobuf.message import Message

from libs.runtime.trust.roles import ROLES, RULES, Role

TOLD = frozenset(path for path, rule in RULES.items() if rule.is_logged or ROLES[path] is Role.OPERATOR)
"""Calls that are logged: of operators, and of clients so that other clients of the topic or group can look them up."""

TEXT_LENGTH_MAX = 300
"""Maximum number of characters of a request, and of an outcome, in a line."""
LINE_COUNT_MAX, LINE_AGAIN_S = 100, 1.0
"""Maximum number of lines of a role at once, and the time after which another line is permitted."""
REFUSAL_COUNT_MAX, REFUSAL_AGAIN_S = 10, 10.0
"""The same limits for refusals."""

_log = logging.getLogger(__name__)


class _Bound:
    """A limit of lines: `line_count_max` at once, and another line after each `again_s`."""

    def __init__(self, line_count_max: int, again_s: float, now_s: Callable[[], float]) -> None:
        self._line_count_max, self._again_s, self._now_s = line_count_max, again_s, now_s
        self._room = float(line_count_max)
        self._seen_s = now_s()
        self._left_out_count = 0

    def tell(self, level: int, line: str) -> None:
        now_s = self._now_s()
        self._room = min(self._line_count_max, self._room + (now_s - self._seen_s) / self._again_s)
        self._seen_s = now_s
        if self._room < 1:
            self._left_out_count += 1
            return
        self._room -= 1
        if self._left_out_count:
            line += f" ({self._left_out_count} lines before it were left out)"
            self._left_out_count = 0
        _log.log(level, "%s", line)


class Trail:
    """The trail of a server."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        roles = (Role.OPERATOR, Role.CLIENT)
        self._bounds = {role: _Bound(LINE_COUNT_MAX, LINE_AGAIN_S, now_s) for role in roles}
        self._refusals = _Bound(REFUSAL_COUNT_MAX, REFUSAL_AGAIN_S, now_s)

    def ended(self, path: str, request: object, *, peer: str, outcome: str) -> None:
        """Log the end of a call. `path` is the path of the method, `outcome` the name of the code with the reason."""
        if path not in TOLD or getattr(request, "dry_run", False):
            return
        role = ROLES[path]
        asked = f"{_short(path)} [{_cut(_text_of(request))}], asked by {peer} as {str(role.name).lower()}"
        self._bounds[role].tell(logging.INFO, f"{asked}: {_cut(outcome)}")

    def refused(self, path: str, *, peer: str, reason: str) -> None:
        """Log a call that was refused before its request was read."""
        self._refusals.tell(logging.WARNING, f"{_short(path)}, asked by {peer}: refused, {reason}")


def _short(path: str) -> str:
    """Return service and method, without the package."""
    return path.rpartition(".")[2]


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX] + "…"


def _text_of(request: object) -> str:
    return text_format.MessageToString(request, as_one_line=True).strip() if isinstance(request, Message) else ""
