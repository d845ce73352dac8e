# SPDX-License-Identifier: Apache-2.0
"""Trail: a log line for each call that changes what others rely on, and for calls that were refused for their token.

It tells what was asked, from which address, and how it ended. Messages and acknowledgements are not told: they are
many, and the log has them. What only asks what would happen (`dry_run`) is not told either.
Lines are bounded, so that a greedy caller fills no disk with them. Lines of operators have a bound of their own, which
clients can't use up, and so have refusals. A line says how many before it were left out.
Callers: one event loop.
"""

import logging
import time
from collections.abc import Callable

from google.protobuf import text_format
from google.protobuf.message import Message

from libs.runtime.trust.roles import ROLES, Role

CLIENTS_CALLS = frozenset(
    {
        "/reput.commitlog.v1.TopicService/CreateTopic",
        "/reput.delivery.v1.DeadLetterService/ReplayDeadLetters",
        "/reput.delivery.v1.GroupService/SetGroup",
        "/reput.delivery.v1.GroupService/DeleteGroup",
        "/reput.delivery.v1.GroupService/ResetGroup",
        "/reput.indexer.v1.ConsumerOffsetService/ResetConsumerOffset",
        "/reput.indexer.v1.ConsumerOffsetService/DeleteConsumerGroup",
    }
)
"""What clients may ask for, too, and others of the same topic or group must be able to look up."""
TOLD = CLIENTS_CALLS | {path for path, role in ROLES.items() if role is Role.OPERATOR}

TEXT_LENGTH_MAX = 300
"""Characters of a request and of an outcome that a line has."""
LINE_COUNT_MAX, LINE_AGAIN_S = 100, 1.0
"""Lines of one role at once, and the time after which there may be one more."""
REFUSAL_COUNT_MAX, REFUSAL_AGAIN_S = 10, 10.0
"""The same for refusals."""

_log = logging.getLogger(__name__)


class _Bound:
    """Lets so many lines through at once, and one more after each `again_s`."""

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
    """See the module."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        roles = (Role.OPERATOR, Role.CLIENT)
        self._bounds = {role: _Bound(LINE_COUNT_MAX, LINE_AGAIN_S, now_s) for role in roles}
        self._refusals = _Bound(REFUSAL_COUNT_MAX, REFUSAL_AGAIN_S, now_s)

    def ended(self, path: str, request: object, *, peer: str, outcome: str) -> None:
        """Note the end of a call. `path` is the method's, and `outcome` the name of its code with the reason."""
        if path not in TOLD or getattr(request, "dry_run", False):
            return
        role = ROLES[path]
        asked = f"{_short(path)} [{_cut(_text_of(request))}], asked by {peer} as {str(role.name).lower()}"
        self._bounds[role].tell(logging.INFO, f"{asked}: {_cut(outcome)}")

    def refused(self, path: str, *, peer: str, reason: str) -> None:
        """Note a call that was refused before its request was read."""
        self._refusals.tell(logging.WARNING, f"{_short(path)}, asked by {peer}: refused, {reason}")


def _short(path: str) -> str:
    """Service and method, without the package."""
    return path.rpartition(".")[2]


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX] + "…"


def _text_of(request: object) -> str:
    return text_format.MessageToString(request, as_one_line=True).strip() if isinstance(request, Message) else ""
