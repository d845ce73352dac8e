# SPDX-License-Identifier: Apache-2.0
"""The bytes of honest callers of the front in HTTP/2, and ways to harm the bytes."""

import random

import ngh2

from libs.runtime.http2.framing import framed

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
            caller.send_data(stream_id, b"".join(framed(b"7" * chance.choice([0, 1, 1, 300]))))
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
