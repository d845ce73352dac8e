# SPDX-License-Identifier: Apache-2.0
"""dispatch_columns: scan columns travel as a DispatchResponse that protobuf reads the same way, and come back."""

import numpy as np
import pytest
from reput.commitlog.v1 import log_service_pb2

from libs.formats.epoch import Epoch
from libs.formats.errors import FormatError
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records import dispatch_columns
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.records.record import INNER_BATCH_FLAG
from libs.kernel.scan.scan_columns import ScanColumns
from tests.support.records import encoded
from tests.unit.libs.kernel.builds import BUILDS, Build, label

BASE = 2**40
NAMES = (
    "physical_offsets", "record_sizes", "queue_indexes", "queue_offsets", "tags_codes", "store_times_ms", "key_counts",
    "key_hashes",
)  # fmt: skip


def scanned(build: Build) -> tuple[ScanColumns, int]:
    """Columns of four records, of which a record has no queue and a record has no key, and the end of the records."""
    data = encoded(BASE, properties=b"KEYS\x01a b\x02TAGS\x01shipment\x02")
    for changes in ({"sys_flag": 4}, {"topic": "订单", "queue_id": 0}, {"properties": b""}):
        data += encoded(BASE + len(data), **changes)
    columns = build.scan_cy.ScanColumns(9, 9)
    assert build.scan_cy.scan(data, 0, len(data), BASE, True, columns) == 0
    return columns, BASE + len(data)


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_round_trip(build: Build) -> None:
    """Each column comes back equal, from the wire bytes and from protobuf's bytes of the same message."""
    columns, end = scanned(build)
    wire = dispatch_columns.encode(columns, BASE, end)
    message = log_service_pb2.DispatchResponse.FromString(wire)
    assert message.WhichOneof("step") == "columns"
    for shift in range(8):
        room = bytearray(bytes(shift) + wire)
        for data in (wire, message.SerializeToString(), memoryview(room)[shift:]):
            batch = dispatch_columns.decode(data)
            assert isinstance(batch, DispatchBatch)
            assert (batch.start_physical_offset, batch.end_physical_offset) == (BASE, end)
            assert batch.queues == [("TopicTest", 3), ("订单", 0)]
            for name in NAMES:
                count = columns.key_count if name == "key_hashes" else columns.count
                column = getattr(batch, name)
                assert column.tolist() == getattr(columns, name)[:count].tolist()
                assert column.flags.aligned
                wire_name = "record_sizes_bytes" if name == "record_sizes" else name
                assert list(getattr(message.columns, wire_name)) == column.tolist()


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_columns_are_a_batch_without_a_way_over_the_wire(build: Build) -> None:
    """A batch that is made of the columns in place equals the batch from the wire.

    The two parts of a split batch together equal the batch.
    """
    columns, end = scanned(build)
    batch = dispatch_columns.batch_of(columns, BASE, end)
    decoded = dispatch_columns.decode(dispatch_columns.encode(columns, BASE, end))
    assert isinstance(decoded, DispatchBatch)
    assert (batch.queues, batch.start_physical_offset, batch.end_physical_offset) == (decoded.queues, BASE, end)
    for place in (BASE, *batch.physical_offsets.tolist(), end):
        below, above = batch.split(place)
        assert (below.end_physical_offset, above.start_physical_offset) == (place, place)
        assert len(below.key_hashes) == below.key_counts.sum()
        for name in NAMES:
            joined = np.concatenate((getattr(below, name), getattr(above, name)))
            assert joined.tolist() == getattr(decoded, name).tolist()


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_batch_records(build: Build) -> None:
    """Records with a batch inside are separated from the other records of their queue, and keep their keys."""
    data = b""
    for changes in ({}, {"sys_flag": INNER_BATCH_FLAG}, {}, {"sys_flag": INNER_BATCH_FLAG, "queue_id": -1}):
        data += encoded(BASE + len(data), **changes)
    columns = build.scan_cy.ScanColumns(9, 9)
    assert build.scan_cy.scan(data, 0, len(data), BASE, True, columns) == 0
    assert columns.queues() == [(b"TopicTest", 3), (b"TopicTest", 3), (b"TopicTest", -1)]
    assert columns.batch_queues == {1, 2}
    assert columns.queue_indexes[:4].tolist() == [0, 1, 0, 2]
    assert columns.key_counts[:4].tolist() == [1] * 4
    columns.set_queues([(b"TopicTest", 3), (b"TopicTest", 3 + 2**32)])
    columns.count, columns.key_count = 3, 3
    batch = dispatch_columns.decode(dispatch_columns.encode(columns, BASE, BASE + len(data)))
    assert isinstance(batch, DispatchBatch)
    assert (batch.queues, batch.batch_queues) == ([("TopicTest", 3)] * 2, {1})


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_queues_that_can_have_no_directory(build: Build) -> None:
    """A record of another store with a strange queue id or topic travels, so that the Indexer can skip it."""
    data = b""
    for changes in ({"queue_id": -3}, {"queue_id": 70_000}, {"queue_id": 2**31 - 1}, {"topic": "QQ"}):
        data += encoded(BASE + len(data), **changes).replace(b"QQ", b"\xff\xfe")
    columns = build.scan_cy.ScanColumns(9, 9)
    assert build.scan_cy.scan(data, 0, len(data), BASE, True, columns) == 0
    end = BASE + len(data)
    batch = dispatch_columns.decode(dispatch_columns.encode(columns, BASE, end))
    assert isinstance(batch, DispatchBatch)
    assert batch.queues == dispatch_columns.batch_of(columns, BASE, end).queues
    assert batch.queues[:3] == [("TopicTest", -3), ("TopicTest", 70_000), ("TopicTest", 2**31 - 1)]
    assert batch.queues[3][0] == r"\xff\xfe"


def test_no_records() -> None:
    """Columns without records, as a blank at the end of a segment gives, are a batch of nothing."""
    batch = dispatch_columns.decode(dispatch_columns.encode(ScanColumns(1, 1), 5, 900))
    assert isinstance(batch, DispatchBatch)
    assert (batch.start_physical_offset, batch.end_physical_offset, len(batch.physical_offsets)) == (5, 900, 0)


def test_other_steps() -> None:
    """Handshakes and heartbeats of the generated classes are read field by field, zeros and negatives included."""
    response = log_service_pb2.DispatchResponse()
    response.handshake.common_end_physical_offset, response.handshake.epoch = 1, 2
    response.handshake.min_physical_offset, response.handshake.confirmed_physical_offset = 3, 2**62
    assert dispatch_columns.decode(response.SerializeToString()) == Handshake(1, 2, 3, 2**62)
    response.handshake.set_apart_topics.add(topic="batches", why="queue.type=BatchCQ")
    apart = {"batches": "queue.type=BatchCQ"}
    assert dispatch_columns.decode(response.SerializeToString()) == Handshake(1, 2, 3, 2**62, set_apart=apart)
    response.handshake.epochs.add(number=1)
    response.handshake.epochs.add(number=2, start_physical_offset=2**40)
    found = dispatch_columns.decode(response.SerializeToString())
    assert found == Handshake(1, 2, 3, 2**62, set_apart=apart, epochs=(Epoch(1, 0), Epoch(2, 2**40)))
    response.heartbeat.confirmed_physical_offset = 9
    assert dispatch_columns.decode(response.SerializeToString()) == Heartbeat(9, 0)
    response.heartbeat.min_physical_offset = -1
    assert dispatch_columns.decode(response.SerializeToString()) == Heartbeat(9, -1)


def column(number: int, *values: int, kind: str = "<i8") -> bytes:
    """A packed column as a field."""
    return length_delimited(number, np.array(values, kind).tobytes())


def columns_of(count: int, **changes: bytes) -> bytes:
    """A response of `count` records of a queue without keys; `changes` replaces fields by number, `f5=...`."""
    parts = {f"f{number}": column(number, *[0] * count) for number in (4, 7, 8, 9)}
    parts |= {f"f{number}": column(number, *[0] * count, kind="<i4") for number in (5, 6, 10)}
    parts["f3"] = length_delimited(3, length_delimited(1, b"T"))
    return length_delimited(2, b"".join((parts | changes).values()))


BAD = {
    "nothing": b"",
    "unknown_step": length_delimited(9, b""),
    "step_as_number": int_field(2, 1),
    "cut": columns_of(2)[:-1],
    "odd_bytes": columns_of(2, f4=length_delimited(4, bytes(15))),
    **{f"short_f{number}": columns_of(2, **{f"f{number}": column(number, 1)}) for number in (4, 7, 8, 9)},
    **{f"short_f{number}": columns_of(2, **{f"f{number}": column(number, 0, kind="<i4")}) for number in (5, 6, 10)},
    "missing_column": columns_of(2, f9=b""),
    "column_twice": columns_of(2, f12=column(4, 1, 2)),
    "column_as_number": columns_of(0, f4=int_field(4, 7)),
    "queue_index_beyond": columns_of(1, f6=column(6, 1, kind="<i4")),
    "queue_index_below": columns_of(1, f6=column(6, -2, kind="<i4")),
    "negative_key_count": columns_of(2, f10=column(10, -1, 1, kind="<i4")),
    "hash_missing": columns_of(1, f10=column(10, 1, kind="<i4")),
    "hash_without_key": columns_of(1, f11=column(11, 5, kind="<i4")),
    "negative_hash": columns_of(1, f10=column(10, 1, kind="<i4"), f11=column(11, -5, kind="<i4")),
    "key_counts_overflow": columns_of(2, f10=column(10, 2**31 - 1, 2**31 - 1, kind="<i4")),
    "topic_not_utf8": columns_of(1, f3=length_delimited(3, length_delimited(1, b"\xff"))),
    "queue_id_below_int32": columns_of(1, f3=length_delimited(3, int_field(2, -(2**31) - 1))),
    "queue_id_above_int32": columns_of(1, f3=length_delimited(3, int_field(2, 2**31))),
    "start_as_bytes": columns_of(1, f1=length_delimited(1, b"x")),
    "handshake_of_bytes": length_delimited(1, length_delimited(1, b"x")),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_response(name: str) -> None:
    """Each malformed response raises FormatError."""
    with pytest.raises(FormatError):
        dispatch_columns.decode(BAD[name])


def test_every_cut_and_flip() -> None:
    """No cut and no inverted byte of a good response raises anything but FormatError."""
    columns, end = scanned(BUILDS[0])
    wire = dispatch_columns.encode(columns, BASE, end)
    hostile = [wire[:size] for size in range(len(wire))]
    hostile += [wire[:at] + bytes([wire[at] ^ bits]) + wire[at + 1 :] for at in range(len(wire)) for bits in (1, 0x80)]
    outcomes = set()
    for data in hostile:
        try:
            outcomes.add(type(dispatch_columns.decode(data)).__name__)
        except FormatError:
            outcomes.add("refused")
    assert {"refused", "DispatchBatch"} <= outcomes
