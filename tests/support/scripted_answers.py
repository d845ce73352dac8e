# SPDX-License-Identifier: Apache-2.0
"""Answers of a server that a test demands of libnghttp2."""

from typing import Any

import grpc
import ngh2

from libs.runtime.http2.framing import framed
from libs.runtime.http2.heads import HEAD

OK_FRAME = b"".join(framed(b"x"))
C = grpc.StatusCode


def answer(*frames: bytes, last: tuple[tuple[bytes, bytes], ...] = ((b"grpc-status", b"0"),)) -> Any:
    """An action that answers with these frames and this end."""

    def act(wire: ngh2.Connection, stream_id: int) -> None:
        wire.send_response(stream_id, HEAD)
        for frame in frames:
            wire.send_data(stream_id, frame)
        wire.send_trailers(stream_id, last)

    return act
