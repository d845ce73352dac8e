# SPDX-License-Identifier: Apache-2.0
"""Checks of request fields that services share: every value from outside is checked before an engine sees it.

Each check returns the value in the engine's form, or raises BadArgument or BadTopicName, which name the field, the sent
value and the nearest value that would be accepted.
"""

from typing import Any, Protocol

from libs.formats.limits import (
    GROUP_SIZE_BYTES_MAX,
    STORED_QUEUE_ID_MAX,
    STORED_TOPIC_SIZE_BYTES_MAX,
)
from libs.formats.names import is_group, is_topic
from libs.requests.checks import check_range
from libs.requests.errors import BadArgument, BadTopicName

TEXT_SHOWN = 100
NANOS_MAX = 999_999_999
SECONDS_MIN, SECONDS_MAX = -62_135_596_800, 253_402_300_799  # the years 1 to 9999, protobuf's range
DURATION_SECONDS_MAX = 315_576_000_000


class Request(Protocol):
    """A request: a message of protobuf."""

    def HasField(self, field_name: Any) -> bool:  # noqa: N802 - its name
        """Return whether a field is set."""
        ...


class Seconds(Protocol):
    """A Timestamp or a Duration."""

    @property
    def seconds(self) -> int:
        """The whole seconds."""
        ...

    @property
    def nanos(self) -> int:
        """The rest, in nanoseconds."""
        ...


def topic(name: str, field: str = "topic") -> str:
    """Return a topic name."""
    if not is_topic(name):
        reason = f"must be 1 to {STORED_TOPIC_SIZE_BYTES_MAX} bytes of letters, digits, _, -, %, | and +"
        raise BadTopicName(reason, field=field, value=name[:TEXT_SHOWN], limit=STORED_TOPIC_SIZE_BYTES_MAX)
    return name


def group(name: str) -> str:
    """Return a consumer group's name."""
    if not is_group(name):
        reason = f"must be 1 to {GROUP_SIZE_BYTES_MAX} bytes of letters, digits, _, -, % and |"
        raise BadArgument(reason, field="group", value=name[:TEXT_SHOWN], limit=GROUP_SIZE_BYTES_MAX)
    return name


def queue_id(value: int, field: str = "queue_id") -> int:
    """Return a queue id."""
    return check_range(value, field, most=STORED_QUEUE_ID_MAX)


def time_ms(request: Request, field: str, prefix: str = "") -> int | None:
    """Return a Timestamp in whole milliseconds, None if it is absent. `prefix` is the path to the field."""
    if not request.HasField(field):
        return None
    value: Seconds = getattr(request, field)
    if not (SECONDS_MIN <= value.seconds <= SECONDS_MAX and 0 <= value.nanos <= NANOS_MAX):
        raise BadArgument("is no valid time", field=prefix + field, value=f"{value.seconds} s {value.nanos} ns")
    return value.seconds * 1000 + value.nanos // 1_000_000


def duration_ms(request: Request, field: str, prefix: str = "", *, least: int = 0, most: int) -> int | None:
    """Return a Duration in milliseconds, None if it is absent. Raises BadArgument outside of [least, most]."""
    if not request.HasField(field):
        return None
    value: Seconds = getattr(request, field)
    if not (-DURATION_SECONDS_MAX <= value.seconds <= DURATION_SECONDS_MAX and 0 <= value.nanos <= NANOS_MAX):
        raise BadArgument("is no valid time", field=prefix + field, value=f"{value.seconds} s {value.nanos} ns")
    value_ms = value.seconds * 1000 + value.nanos // 1_000_000
    return check_range(value_ms, f"{prefix}{field} in ms", least=least, most=most)


def wait_s(request: Request, field: str, *, most_s: float) -> float:
    """Return a Duration in seconds: 0 if it is absent, and at most `most_s`."""
    value: Seconds = getattr(request, field)
    if not (0 <= value.seconds <= DURATION_SECONDS_MAX and 0 <= value.nanos <= NANOS_MAX):
        raise BadArgument("must not be negative", field=field, value=f"{value.seconds} s {value.nanos} ns", limit=0)
    return min(value.seconds + value.nanos / 1e9, most_s)
