# SPDX-License-Identifier: Apache-2.0
"""Bytes that no honest caller sends: the connection ends or continues, and none of its memory stays.

REPUT_HTTP2_CONNECTIONS=100000 tries more connections than the suite does.
"""

import asyncio
import os
import random

import ngh2
import pytest

from tests.support.patience import eventually
from tests.unit.libs.runtime.http2.test_connection import Pair, frame, serving

pytestmark = pytest.mark.usefixtures("each_session")

CONNECTION_COUNT = int(os.environ.get("REPUT_HTTP2_CONNECTIONS", "400"))
METHODS = ("Echo", "Wait", "Fail", "Each", "Many", "Nothing")


def session(chance: random.Random) -> bytes:
    """The bytes of an honest caller: some calls of each kind, whole, half or taken back, and pings."""
    caller = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
    caller.initiate_connection()
    said = caller.data_to_send()
    for _ in range(chance.randint(1, 8)):
        fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"), (b"te", b"trailers")]
        fields += [(b":path", f"/s/{chance.choice(METHODS)}".encode()), (b"content-type", b"application/grpc")]
        fields += [(b"grpc-timeout", b"5m")] if chance.random() < 0.3 else []
        stream_id = caller.send_request(fields)
        for _ in range(chance.randint(0, 3)):
            caller.send_data(stream_id, frame(b"7" * chance.choice([0, 1, 1, 300])))
        said += caller.data_to_send()
        match chance.randint(0, 3):
            case 0:
                caller.reset_stream(stream_id)
            case 1:
                caller.ping(chance.randbytes(8))
            case _:
                caller.end_stream(stream_id)
        said += caller.data_to_send()
    return said


def harmed(said: bytes, chance: random.Random) -> bytes:
    """The same with some bytes changed, lost, repeated or new; now and then as it was."""
    data = bytearray(said)
    for _ in range(chance.choice([0, 1, 1, 2, 5, 20])):
        at = (
            chance.randrange(len(data))
            if chance.random() < 0.3
            else chance.randrange(min(24, len(data) - 1), len(data))
        )
        match chance.randint(0, 3):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.choice([1, 9, 40])]
            case 2:
                data[at:at] = data[at : at + chance.choice([1, 9, 40])]
            case _:
                data[at:at] = chance.randbytes(chance.choice([1, 9, 40]))
        if len(data) < 30:
            break
    return bytes(data)


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
