# SPDX-License-Identifier: Apache-2.0
"""Bytes that no honest caller sends: the connection ends or continues, and none of its memory stays.

REPUT_HTTP2_CONNECTIONS=100000 tries more connections than the suite does.
"""

import asyncio
import os
import random

import pytest

from tests.support.harmed_sessions import harmed, session
from tests.support.patience import eventually
from tests.unit.libs.runtime.http2.test_connection import Pair, serving

pytestmark = pytest.mark.usefixtures("each_session")

CONNECTION_COUNT = int(os.environ.get("REPUT_HTTP2_CONNECTIONS", "400"))


async def test_harmed_sessions(chance: random.Random) -> None:
    """Cut into any pieces, with a caller that reads or does not: `serving` sees that nothing is held at the end."""
    for _ in range(CONNECTION_COUNT):
        with serving() as (_, _, connect):
            pair = connect()
            await feed(pair, harmed(session(chance), chance), chance)
            if chance.random() < 0.5:
                pair.connection.close()
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def feed(pair: Pair, data: bytes, chance: random.Random) -> None:
    at = 0
    while at < len(data):
        size = chance.choice([1, 9, 100, 5_000])
        pair.arrive(data[at : at + size])
        at += size
        match chance.randint(0, 5):
            case 0:
                pair.connection.pause_writing()
            case 1:
                pair.connection.resume_writing()
            case 2:
                await asyncio.sleep(0)
            case _:
                pass


async def test_floods() -> None:
    """A caller that takes back calls faster than the limit is disconnected, and its calls end."""
    with serving() as (_, server, connect):
        pair = connect()
        pair.pass_on()
        frames = b""
        for number in range(15_000):
            stream = (1 + 2 * number).to_bytes(4, "big")
            block = bytes.fromhex("83 86 04 05") + b"/s/No" + bytes.fromhex("41 01 78 5f 10") + b"application/grpc"
            frames += len(block).to_bytes(3, "big") + b"\x01\x05" + stream + block
            frames += b"\0\0\4\3\0" + stream + b"\0\0\0\x08"
        for at in range(0, len(frames), 65_536):
            pair.arrive(frames[at : at + 65_536])
            await asyncio.sleep(0)
        assert not pair.transport.is_reading
        await eventually(lambda: pair.transport.is_closed)
        assert server.call_count == 0
