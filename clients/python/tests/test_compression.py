# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies: bodies that are sent, bodies of RocketMQ's clients, and bodies that can't be read."""

import gzip
import random
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from reput.commitlog.v1.append_service_pb2 import AppendRequest
from reput.common.v1.message_pb2 import StoredMessage
from reput_client import BodyError, BodyTooLargeError, Message, NewMessage, ProducerOptions
from reput_client.core.body_codecs import LEVELS
from reput_client.core.compression import FLAGS, TYPE_MASK
from reput_client.core.encode import Encoder

CODECS = list(LEVELS)
GOLDEN = Path(__file__).parent / "data"
GOLDEN_BODY = b"".join(b"order %d: 2 apples, 3 pears\n" % number for number in range(300))
"""The content of the bodies in `data`, which RocketMQ 5.3.3's own compressors made, at its client's level."""


def sent(body: Any, **options: Any) -> AppendRequest:
    """Return the message that a producer with these options sends."""
    encoder = Encoder(makes_unique_ids=False, compressor=ProducerOptions(**options).compressor())
    return AppendRequest.FromString(encoder.encode(NewMessage("t", body))[0]).messages[0]


def stored(body: bytes, sys_flag: int) -> Message:
    """A message as an answer has it."""
    return Message(StoredMessage(topic="orders", queue_id=3, queue_offset=7, body=body, sys_flag=sys_flag))


def packed(codec: str, body: bytes = GOLDEN_BODY) -> bytes:
    """A body as a producer sends it."""
    return sent(body, compression=codec, compression_threshold_bytes=0).body


@pytest.mark.parametrize("body", [GOLDEN_BODY, bytearray(GOLDEN_BODY), memoryview(GOLDEN_BODY)], ids=type)
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(codec: str, body: Any) -> None:
    """A body that a producer compresses is smaller, has RocketMQ's flags, and is read as it was."""
    message = sent(body, compression=codec)
    assert (message.sys_flag, len(message.body) < len(GOLDEN_BODY) / 2) == (FLAGS[codec], True)
    read = stored(message.body, message.sys_flag)
    assert read.body == GOLDEN_BODY
    assert read.body is read.body
    assert (read.raw_body, read.inflate(len(GOLDEN_BODY))) == (message.body, GOLDEN_BODY)
    assert f"body={len(message.body)} bytes" in repr(read)


@pytest.mark.parametrize("codec", CODECS)
def test_rocketmqs_bodies(codec: str) -> None:
    """Bodies that RocketMQ's client compressed can be read."""
    body = bytes.fromhex((GOLDEN / f"{codec}.hex").read_text())
    assert stored(body, FLAGS[codec]).body == GOLDEN_BODY


def test_bodies_of_old_clients() -> None:
    """Before RocketMQ 5 there was no compression type: the body is zlib."""
    assert stored(zlib.compress(GOLDEN_BODY), 1).body == GOLDEN_BODY


def test_bodies_in_gzip() -> None:
    """Early gateways stored compressed bodies of RocketMQ 5's clients without the type of the codec."""
    assert stored(gzip.compress(GOLDEN_BODY), 1).body == GOLDEN_BODY


def test_what_is_not_compressed() -> None:
    """A body below the threshold, a body that would not become smaller, and all bodies without the option."""
    noise = random.Random(1).randbytes(5000)
    for body, options in [
        (bytes(4095), {"compression": "zlib"}),
        (noise, {"compression": "zlib", "compression_threshold_bytes": 0}),
        (b"", {"compression": "zlib", "compression_threshold_bytes": 0}),
        (bytes(10_000), {}),
    ]:
        message = sent(body, **options)
        assert (message.body, message.sys_flag) == (body, 0)
        assert stored(message.body, 0).body == body
        assert stored(message.body, 0).inflate(1) == body
    assert sent(bytes(4096), compression="zlib").sys_flag == FLAGS["zlib"]


def test_lz4_blocks_are_independent() -> None:
    """RocketMQ's reader refuses frames whose blocks depend on each other: bit 5 behind the magic number."""
    assert packed("lz4", GOLDEN_BODY * 20)[4] & 0x20  # several blocks: a single block depends on no other


@pytest.mark.parametrize("codec", CODECS)
def test_a_body_that_becomes_too_large(codec: str) -> None:
    """It is cut off at the limit, in an error that names the message. A larger limit lets it pass."""
    body = packed(codec, bytes(1 << 20))
    assert len(body) < 8000
    message = stored(body, FLAGS[codec])
    with pytest.raises(BodyTooLargeError, match=r"orders queue 3 offset 7: .* become more than 1000000; inflate\(\)"):
        message.inflate(1_000_000)
    assert message.inflate(1 << 20) == bytes(1 << 20)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("harm", ["cut", "cut behind the head", "overwritten", "empty", "longer", "another"])
def test_a_damaged_body(codec: str, harm: str) -> None:
    """The error has the message's place, and `raw_body` still has the body as it is stored."""
    body = packed(codec)
    body = {
        "cut": body[:-1],
        "cut behind the head": body[:12],
        "overwritten": b"\xff" * len(body),
        "empty": b"",
        "longer": body + b"x",
        "another": b"plain text",
    }[harm]
    message = stored(body, FLAGS[codec])
    with pytest.raises(BodyError, match=r"orders queue 3 offset 7: .*raw_body"):
        _ = message.body
    assert message.raw_body == body


def test_an_unknown_type() -> None:
    """A type that RocketMQ does not have is an error."""
    with pytest.raises(BodyError, match="type 5"):
        _ = stored(b"x", 1 | 0x500 & TYPE_MASK).body


@pytest.mark.parametrize(
    ("codec", "package"),
    [
        ("lz4", "lz4"),
        pytest.param(
            "zstd", "backports.zstd", marks=pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has it")
        ),
    ],
)
def test_a_missing_package(monkeypatch: pytest.MonkeyPatch, codec: str, package: str) -> None:
    """A producer is not made, and a body is not read: the error names the package to install."""
    body = packed(codec)
    top = package.partition(".")[0]
    for loaded in [key for key in sys.modules if key.partition(".")[0] == top]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, top, None)
    words = rf"{codec} bodies need the package {package}.*: pip install 'reput-client\[compression\]'"
    with pytest.raises(ModuleNotFoundError, match=words):
        ProducerOptions(compression=codec)
    with pytest.raises(ModuleNotFoundError, match=words):
        _ = stored(body, FLAGS[codec]).body


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compression": "gzip"}, "compression is 'gzip': use 'none', 'zlib', 'lz4', 'zstd'"),
        ({"compression": "zlib", "compression_level": 10}, "compression_level is 10: zlib has 1 to 9"),
        ({"compression": "zstd", "compression_level": 0}, "compression_level is 0: zstd has 1 to 22"),
        ({"compression_threshold_bytes": -1}, "compression_threshold_bytes is negative"),
    ],
)
def test_bad_options(options: dict[str, Any], words: str) -> None:
    """Invalid options are refused when they are made."""
    with pytest.raises(ValueError, match=words):
        ProducerOptions(**options)


def test_levels() -> None:
    """A higher level makes less."""
    body = Path(__file__).read_bytes()
    sizes = [len(sent(body, compression="zlib", compression_level=level).body) for level in (1, 9)]
    assert sizes[0] > sizes[1]
