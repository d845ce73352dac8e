# SPDX-License-Identifier: Apache-2.0
"""Answers of a scan are parsed as protobuf parses them, in any order of their fields, and damage is an error."""

import random

import pytest
from google.protobuf.message import DecodeError
from reput.indexer.v1.scan_service_pb2 import ScanRange, ScanResponse
from reput_client.frames.answers import ScanAnswer

RANGE = ScanRange(topic="orders", queue_id=3, start_queue_offset=5, end_queue_offset=2**40)
FRAME = ScanResponse(arrow_ipc=b"frame" * 100).SerializeToString()
REST = ScanResponse(row_count=7, range=RANGE).SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_frames_of_any_size(size: int) -> None:
    """Frame and range come through, without a copy of the frame."""
    raw = ScanResponse(arrow_ipc=b"x" * size, row_count=7, range=RANGE).SerializeToString()
    answer = ScanAnswer.FromString(raw)
    assert (bytes(answer.arrow_ipc), answer.range) == (b"x" * size, RANGE)
    assert size == 0 or answer.arrow_ipc.obj is raw


@pytest.mark.parametrize(
    "raw",
    [
        REST,
        FRAME,
        REST + FRAME,
        FRAME + REST + FRAME,
        REST + b"\x0a\x00",
        b"\x0a\x00" + REST,
        b"",
        b"\x0a\x81\x00x" + REST,
    ],
    ids=["no-frame", "no-range", "frame-last", "two-frames", "empty-last", "empty-first", "nothing", "long-varint"],
)
def test_any_order_of_fields(raw: bytes) -> None:
    """The parser finds the same fields as protobuf."""
    answer, expected = ScanAnswer.FromString(raw), ScanResponse.FromString(raw)
    assert (bytes(answer.arrow_ipc), answer.range) == (expected.arrow_ipc, expected.range)


def test_damage() -> None:
    """Cut or changed bytes are refused if protobuf refuses them, and otherwise give the same answer."""
    chance = random.Random(5)
    whole = FRAME + REST
    for _ in range(3_000):
        raw = bytearray(whole[: chance.randint(0, len(whole))])
        for _ in range(chance.randint(0, 2)):
            if raw:
                raw[chance.randrange(min(len(raw), 12)) if chance.random() < 0.7 else -1] = chance.randrange(256)
        try:
            expected = ScanResponse.FromString(bytes(raw))
        except DecodeError:
            with pytest.raises(DecodeError):
                ScanAnswer.FromString(bytes(raw))
        else:
            answer = ScanAnswer.FromString(bytes(raw))
            assert (bytes(answer.arrow_ipc), answer.range) == (expected.arrow_ipc, expected.range)
