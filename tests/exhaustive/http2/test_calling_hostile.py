# SPDX-License-Identifier: Apache-2.0
"""The calling side against answers with random changes."""

import asyncio
import random
from typing import Any
from unittest.mock import Mock

import grpc
import ngh2
import pytest

from libs.runtime.http2.calling.call import Method, OutgoingCall
from libs.runtime.http2.calling.link import Link
from libs.runtime.http2.calling.outcome import head_of
from tests.support.scripted_answers import OK_FRAME, C, answer

pytestmark = pytest.mark.usefixtures("each_session")


class Sink(asyncio.Transport):
    """A transport that keeps the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def test_mutated_answers() -> None:
    """With any bytes of a server calls end with a status or wait, and nothing else happens."""
    outcomes: set[grpc.StatusCode | None] = set()
    for seed in range(2_000):
        chance = random.Random(seed)
        server = ngh2.Connection(ngh2.Role.SERVER, ngh2.Configuration())
        server.initiate_connection({})
        arriving = memoryview(bytearray(1 << 16))
        link = Link(arriving, Mock())
        sink = Sink()
        link.connection_made(sink)
        calls = [OutgoingCall(Method(b"/a/B", None, None, 1_024)) for _ in range(2)]
        for call in calls:
            link.begin(call, head_of(b"/a/B", b"a", b"http", None, ()), b"x")
        link.flush()
        server.receive_data(sink.written)
        for event in server.events():
            if isinstance(event, ngh2.RequestReceived):
                answer(OK_FRAME)(server, event.stream_id)
        data = bytearray(server.data_to_send())
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(data))
            change = chance.randrange(3)
            if change == 0:
                data[at] ^= 1 << chance.randrange(8)
            elif change == 1:
                del data[at : at + chance.randrange(1, 20)]
            else:
                data[at:at] = data[chance.randrange(len(data)) :][: chance.randrange(1, 40)]
        for start in range(0, len(data), 37):
            piece = bytes(data[start : start + 37])
            arriving[: len(piece)] = piece
            link.buffer_updated(len(piece))
        await asyncio.sleep(0)
        link.connection_lost(None)
        assert all(call.done() for call in calls)
        outcomes |= {await call.code() for call in calls}
    assert outcomes >= {C.OK, C.UNAVAILABLE, C.INTERNAL}
