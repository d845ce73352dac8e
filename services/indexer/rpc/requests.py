# SPDX-License-Identifier: Apache-2.0
"""Checks of request fields that only the Indexer has. Checks shared by services: libs/requests/arguments.py."""

from google.protobuf.message import Message

from libs.formats.limits import PROPERTIES_SIZE_BYTES_MAX
from libs.requests.arguments import TEXT_SHOWN, time_ms
from libs.requests.errors import BadArgument
from services.indexer.engine.answer.query import TIME_MAX_MS, TIME_MIN_MS


def time_range(request: Message, prefix: str = "") -> tuple[int, int]:
    """Return start_time and end_time. Absent times are the ends of all time."""
    start_ms, end_ms = time_ms(request, "start_time", prefix), time_ms(request, "end_time", prefix)
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise BadArgument("is before start_time", field=f"{prefix}end_time", value=end_ms, limit=start_ms)
    return (
        TIME_MIN_MS if start_ms is None else max(TIME_MIN_MS, start_ms),
        TIME_MAX_MS if end_ms is None else end_ms,
    )


def key(value: str, field: str = "key") -> str:
    """Return an index key. KEYS are separated by spaces, so a key has no space. Its bytes must fit into properties."""
    if not value or " " in value:
        raise BadArgument("must be one key, without spaces", field=field, value=value[:TEXT_SHOWN])
    size_bytes = len(value.encode())
    if size_bytes > PROPERTIES_SIZE_BYTES_MAX:
        reason = f"must be at most {PROPERTIES_SIZE_BYTES_MAX} bytes"
        raise BadArgument(reason, field=field, value=size_bytes, limit=PROPERTIES_SIZE_BYTES_MAX)
    return value
