# SPDX-License-Identifier: Apache-2.0
"""Place: where a group is moved to: the begin, the end, a time, or an offset of a queue."""

import re
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from libs.moments import parse_time, time_text
from services.console.change.prepared import Arguments
from services.console.pages.find import LAST_MS, zone_of

Kind = Literal["earliest", "latest", "time", "offset"]
NAMES: tuple[tuple[Kind, str], ...] = (
    ("earliest", "the first message"), ("latest", "the end"), ("time", "a time"), ("offset", "an offset of a queue"),
)  # fmt: skip
QUEUE_OFFSET = re.compile(r"(\d{1,9})/(\d{1,18})", re.ASCII)


class Place(NamedTuple):
    """A place. `at` is exact: milliseconds of a time, or QUEUE/OFFSET."""

    kind: Kind
    at: str = ""

    @property
    def text(self) -> str:
        """The place for people."""
        match self.kind:
            case "earliest":
                return "the first message of each queue"
            case "latest":
                return "the end of each queue"
            case "time":
                return f"the first message of each queue at or after {time_text(self.time_ms)}"
        queue_id, offset = self.queue_offset
        return f"offset {offset:,} of queue {queue_id}"

    @property
    def word(self) -> str:
        """The place as `--to` of the command line has it."""
        return time_text(self.time_ms) if self.kind == "time" else self.kind

    @property
    def time_ms(self) -> int:
        """The time of a place of the kind `time`."""
        return int(self.at)

    @property
    def queue_offset(self) -> tuple[int, int]:
        """The queue and the queue offset of a place of the kind `offset`."""
        queue_id, _, offset = self.at.partition("/")
        return int(queue_id), int(offset)


def place_of(arguments: Arguments, now: datetime) -> Place:
    """Return the place that arguments mean. Raises ValueError."""
    kind, at = arguments.get("to", ""), arguments.get("at", "").strip()
    if kind not in get_args(Kind):
        raise ValueError(f"to is {kind[:40]!r}: one of {', '.join(get_args(Kind))} is expected")
    if kind in ("earliest", "latest"):
        return Place(kind)  # type: ignore[arg-type]  # checked above
    if kind == "offset":
        match = QUEUE_OFFSET.fullmatch(at)
        if match is None:
            raise ValueError(f"at is {at[:40]!r}: a queue and an offset are expected, as in 0/17")
        return Place("offset", f"{int(match[1])}/{int(match[2])}")
    time_ms = parse_time(at, now=now, zone=zone_of(arguments.get("zone", "")))
    if not 0 <= time_ms <= LAST_MS:
        raise ValueError(f"at is {at[:40]!r}: a time from 1970 to 9999 is expected")
    return Place("time", str(time_ms))
