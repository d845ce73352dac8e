# SPDX-License-Identifier: Apache-2.0
"""Calls that their callers take back as soon as they begin them: no work, and in the end no connection."""

import asyncio

import pytest

from libs.runtime.http2 import connection
from libs.runtime.http2.limits import ConnectionLimits
from tests.support.patience import eventually
from tests.unit.libs.runtime.http2.test_connection import frame, serving

pytestmark = pytest.mark.usefixtures("each_session")


async def test_calls_that_are_taken_back_at_once_cost_little() -> None:
    """No handler is called for them, their bytes are given back to the window, and other calls are served."""
    with serving() as (servicer, server, connect):
        pair = connect()
        pair.pass_on()
        for _ in range(2 * ConnectionLimits().connection_window_size_bytes // 200_000):
            stream_id = pair.begin("Each")
            pair.caller.send_data(stream_id, frame(b"x" * 199_000))
            said = pair.caller.data_to_send()
            pair.caller.reset_stream(stream_id)
            pair.arrive(said + pair.caller.data_to_send())
            pair.pass_on()
        assert (server.call_count, servicer.taken) == (0, [])
        assert (await pair.end_of(pair.call("Echo", b"x" * 500_000)))[b"grpc-status"] == b"0"


async def test_who_floods_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flooding caller is not read any more, and is disconnected only after a moment.

    Otherwise it would return at once.
    """
    monkeypatch.setattr(connection, "LEAVE_S", 0.2)
    with serving(call_reset_count_max=100, call_resets_per_s_max=1) as (_, _, connect):
        monkeypatch.setattr(connection, "FLOOD_COUNT", 50)
        pair = connect()
        for _ in range(200):
            stream_id = pair.begin("Echo")
            said = pair.caller.data_to_send()
            pair.caller.reset_stream(stream_id)
            pair.arrive(said + pair.caller.data_to_send())
            await asyncio.sleep(0)
        assert (pair.transport.is_reading, pair.transport.is_closed) == (False, False)
        await eventually(lambda: pair.transport.is_closed)
