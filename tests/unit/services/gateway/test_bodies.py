# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies: inflated for every client, within bounds; a body that can't be inflated harms no other body."""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import lz4.frame
import pytest
from reput.common.v1.message_pb2 import StoredMessage
from reput.delivery.v1.delivery_service_pb2 import ReceivedMessage
from reput.delivery.v1.transaction_service_pb2 import TransactionCheck

from services.gateway.engine.bodies import AT_ONCE_SIZE_BYTES_MAX, Bodies
from services.gateway.errors import Refused
from services.gateway.rpc.caller import Caller
from services.gateway.rpc.codec import question, to_client, to_store
from services.gateway.rpc.wire import messaging_pb2 as wire

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CALLER = Caller("c", "PYTHON", "", "")
SMALL, LARGE = b"the same words again. " * 100, b"the same words again. " * 100_000
LIMIT = 4 << 20
PACKED: dict[int, Any] = {
    0x001: zlib.compress,
    0x101: lz4.frame.compress,
    0x201: zstd.compress,
    0x301: zlib.compress,
}
"""The compression of a body, by its system flag; a flag without a type is the flag of RocketMQ's clients before 5.0."""


@pytest.fixture
def bodies() -> Iterator[Bodies]:
    """Bodies of 4 MiB at most."""
    found = Bodies(size_bytes_max=LIMIT)
    yield found
    found.close()


async def shown(bodies: Bodies, body: bytes, sys_flag: int) -> wire.Message:
    """A stored message as a consumer gets it."""
    stored = StoredMessage(topic="t", body=body, sys_flag=sys_flag, properties={"UNIQ_KEY": "i", "color": "red"})
    return await to_client(ReceivedMessage(message=stored, handle="h"), CALLER, bodies, invisible_ms=None)


def sent(body: bytes, encoding: int = wire.ENCODING_GZIP) -> wire.Message:
    """A message of a client that compresses by itself."""
    return wire.Message(body=body, system_properties=wire.SystemProperties(message_id="i", body_encoding=encoding))


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("sys_flag", PACKED)
async def test_every_codec_is_inflated(bodies: Bodies, sys_flag: int, body: bytes) -> None:
    """A client gets the original body, plain and with its digest, for each codec of its producer."""
    message = await shown(bodies, PACKED[sys_flag](body), sys_flag)
    system = message.system_properties
    assert message.body == body
    assert system.body_encoding == wire.ENCODING_IDENTITY
    assert system.body_digest.checksum == hashlib.md5(body).hexdigest().upper()
    assert dict(message.user_properties) == {"color": "red"}


async def test_a_gzip_body_of_an_earlier_gateway_is_inflated(bodies: Bodies) -> None:
    """Earlier gateways stored the bodies of clients unchanged, and named no codec."""
    assert (await shown(bodies, gzip.compress(SMALL), 0x1)).body == SMALL


async def test_a_question_about_a_transaction_has_its_body_inflated(bodies: Bodies) -> None:
    """A transaction check has the inflated body, which its producer may need."""
    check = TransactionCheck(message=StoredMessage(topic="t", body=zstd.compress(SMALL), sys_flag=0x201))
    asked = (await question(check, CALLER, bodies)).recover_orphaned_transaction_command
    assert (asked.message.body, asked.message.system_properties.body_encoding) == (SMALL, wire.ENCODING_IDENTITY)


@pytest.mark.parametrize(
    ("body", "sys_flag", "fault"),
    [
        (b"nonsense", 0x001, "no whole zlib body"),
        (b"nonsense", 0x101, "no whole lz4 body"),
        (b"nonsense", 0x201, "no whole zstd body"),
        (zlib.compress(SMALL)[:-1], 0x301, "not exactly one zlib body"),
        (zlib.compress(SMALL) + b"more", 0x301, "not exactly one zlib body"),
        (lz4.frame.compress(SMALL)[:-9], 0x101, "not exactly one lz4 body"),
        (b"", 0x201, "not exactly one zstd body"),
        (SMALL, 0x501, "compression type 5"),
        (zlib.compress(bytes(LIMIT + 1)), 0x301, f"more than {LIMIT}"),
        (lz4.frame.compress(bytes(LIMIT + 1)), 0x101, f"more than {LIMIT}"),
        (zstd.compress(bytes(LIMIT + 1)), 0x201, f"more than {LIMIT}"),
    ],
)
async def test_a_body_that_can_not_be_inflated(bodies: Bodies, body: bytes, sys_flag: int, fault: str) -> None:
    """A body that can't be inflated is delivered as stored, plain, with the reason as a property."""
    message = await shown(bodies, body, sys_flag)
    assert (message.body, message.system_properties.body_encoding) == (body, wire.ENCODING_IDENTITY)
    assert fault in message.user_properties["REPUT_BODY_FAULT"]
    assert message.user_properties["color"] == "red"


async def test_the_largest_body_is_inflated(bodies: Bodies) -> None:
    """A body of the limit's size is inflated, in the event loop and in the thread, a larger body is not."""
    small = Bodies(size_bytes_max=100)
    assert (await shown(small, zlib.compress(bytes(100)), 0x301)).body == bytes(100)
    assert "REPUT_BODY_FAULT" in (await shown(small, zlib.compress(bytes(101)), 0x301)).user_properties
    small.close()
    for size in (AT_ONCE_SIZE_BYTES_MAX, AT_ONCE_SIZE_BYTES_MAX + 1, LIMIT):
        assert (await shown(bodies, zstd.compress(bytes(size)), 0x201)).body == bytes(size)


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress])
async def test_what_a_client_compresses_is_stored_so_that_all_readers_know_it(bodies: Bodies, pack: Any) -> None:
    """A compressed body is stored as a zlib stream with its flag.

    Clients send it as zlib or gzip.
    """
    message = await to_store(sent(pack(SMALL)), "t", CALLER, bodies, body_size_bytes_max=LIMIT)
    assert (message.sys_flag, zlib.decompress(message.body)) == (0x301, SMALL)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"nonsense", "MESSAGE_CORRUPTED"),
        (zlib.compress(SMALL)[:-1], "MESSAGE_CORRUPTED"),
        (gzip.compress(bytes(LIMIT + 1), mtime=0), "MESSAGE_BODY_TOO_LARGE"),
        (gzip.compress(b"", mtime=0), "MESSAGE_BODY_EMPTY"),
    ],
)
async def test_what_no_reader_could_read_is_refused(bodies: Bodies, body: bytes, code: str) -> None:
    """A body that no reader could inflate is refused when it is sent."""
    with pytest.raises(Refused) as refused:
        await to_store(sent(body), "t", CALLER, bodies, body_size_bytes_max=LIMIT)
    assert refused.value.code == code


async def test_an_encoding_of_a_later_protocol_is_refused(bodies: Bodies) -> None:
    """An unknown encoding is refused, because its body would be stored as plain."""
    with pytest.raises(Refused, match="body_encoding is 7"):
        await to_store(sent(SMALL, 7), "t", CALLER, bodies, body_size_bytes_max=LIMIT)
