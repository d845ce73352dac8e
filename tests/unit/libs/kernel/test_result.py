# SPDX-License-Identifier: Apache-2.0
"""encode_append_result gives the bytes that protobuf itself parses to the same fields."""

from typing import Any

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats import fields
from libs.formats.protobuf_wire import length_delimited
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
NUMBERS = (
    "start_physical_offset",
    "end_physical_offset",
    "store_time_ms",
    "durability",
    "is_repeated",
    "store_time_ahead_ms",
    "is_late",
)
HOST = length_delimited(fields.APPEND_RESULT_STORE_HOST, pb.AppendResult().store_host.SerializeToString() + b"\x10\x07")


@pytest.mark.parametrize(
    "numbers",
    [
        (0, 0, 0, 0, False, 0, False),
        (1, 127, 128, 3, True, 16_383, True),
        (2**63 - 1, 2**35, 1_764_412_345_678, 1, False, 16_384, True),
        (-1, -(2**63), 2**62, 2, True, -5, False),
    ],
)
@pytest.mark.parametrize("count", [0, 1, 16, 5_000])
def test_every_field(build: Build, numbers: tuple[Any, ...], count: int) -> None:
    """All numbers and columns arrive, also in a large answer. Nothing is read past a column."""
    offsets = b"".join((2**40 + number).to_bytes(8, "little") for number in range(count))
    within = b"".join(number.to_bytes(8, "little") for number in range(count))
    queues = b"".join((number % 7).to_bytes(4, "little") for number in range(count))
    columns = [Guarded(max(1, len(column))).hold(column) for column in (offsets, within, queues)]
    made = build.result_cy.encode_append_result(*numbers, *columns, HOST)
    assert isinstance(made, bytes)
    result = pb.AppendResponse.FromString(made).result
    assert tuple(getattr(result, name) for name in NUMBERS) == numbers
    assert list(result.physical_offsets) == [2**40 + number for number in range(count)]
    assert list(result.queue_offsets) == list(range(count))
    assert list(result.queue_ids) == [number % 7 for number in range(count)]
    assert result.store_host.port == 7


def test_a_store_without_a_host(build: Build) -> None:
    """An empty field is left out."""
    made = build.result_cy.encode_append_result(1, 2, 3, 1, False, 0, False, b"", b"", b"", b"")
    assert not pb.AppendResponse.FromString(made).result.HasField("store_host")
