# SPDX-License-Identifier: Apache-2.0
"""Milliseconds as protobuf timestamps."""

from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(time_ms: int) -> Timestamp:
    """The Timestamp of milliseconds since the epoch."""
    result = Timestamp()
    result.FromMilliseconds(time_ms)
    return result
