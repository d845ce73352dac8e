# SPDX-License-Identifier: Apache-2.0
"""Milliseconds as protobuf timestamps."""

from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(time_ms: int | None) -> Timestamp | None:
    """Return milliseconds since 1970 as a Timestamp, None for None."""
    return None if time_ms is None else Timestamp(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)
