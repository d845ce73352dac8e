# SPDX-License-Identifier: Apache-2.0
"""Bodies as columns: each message has a row, and a body that is none keeps its bytes and a reason."""

import json
import random
import re
import zlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.common.v1.message_pb2 import StoredMessage
from reput_client.frames import Avro, Decoder, Json, Protobuf
from reput_client.frames.columns import schema_of
from reput_client.frames.decode import Decoding, decoding

ORDER = pa.schema({"id": pa.int32(), "amount": pa.float64(), "note": pa.string()})


def decoded(decoder: Decoder, bodies: Sequence[bytes | None], flags: Sequence[int] | None = None) -> pa.Table:
    """Return the rows of bodies, whose offsets count them."""
    chosen = Decoding(decoder, ("offset",))
    batch = pa.record_batch(
        [
            pa.array(range(len(bodies)), pa.int64()),
            pa.array(bodies, pa.binary()),
            pa.array(flags or [0] * len(bodies), pa.int32()),
        ],
        schema=schema_of(chosen.needed),
    )
    found = pa.Table.from_batches(list(chosen.batches(batch)), chosen.schema(batch.schema))
    found.validate(full=True)
    assert found["offset"].to_pylist() == list(range(len(bodies)))
    return found


def test_json_rows() -> None:
    """Fields that are missing are null, others are left out."""
    found = decoded(Json(ORDER), [b'{"id": 1, "amount": 2, "note": "x"}', b' {"more": [1],\n"id": null}\n', b"{}"])
    assert found.schema.names == ["offset", "id", "amount", "note", "bad_body", "bad_reason"]
    assert found.drop(["offset"]).to_pylist() == [
        {"id": 1, "amount": 2.0, "note": "x", "bad_body": None, "bad_reason": None},
        {"id": None, "amount": None, "note": None, "bad_body": None, "bad_reason": None},
        {"id": None, "amount": None, "note": None, "bad_body": None, "bad_reason": None},
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (None, "truncated"),
        (b"no", "DecodeError"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"id": 1}{"id": 2}', "trailing characters"),
        (b'{"id": 1}\n{"id": 2}', "trailing characters"),
        (b'{"id": "1"}', r"Expected `int \| null`, got `str` - at `\$.id`"),
        (b'{"id": 1.5}', "Expected `int"),
        (b'{"id": 2147483648}', "2147483648"),
        (b'{"id": -9223372036854775809}', "."),
        (b'{"id": 1e400}', "."),
        (b'{"note": "\xff"}', "utf-8"),
        (b'{"note": "\\ud800"}', "DecodeError"),
        (b'{"amount": NaN}', "malformed"),
        (b'{"note": ' + b"[" * 100_000, "."),
        (b'{"x": ' + b"[" * 100_000, "."),
        (b"\x00" * 10, "malformed"),
        (b'{"id": 1', "truncated"),
    ],
)
def test_bad_json_is_a_row_of_its_own(body: bytes | None, reason: str) -> None:
    """The rows beside it are decoded, as if it were not there: half an object takes no neighbour."""
    good = [b'{"id": 7}', b'{"id": 8}', b'{"id": 9}']
    found = decoded(Json(ORDER), [good[0], body, good[1], body, good[2]])
    assert found["id"].to_pylist() == [7, None, 8, None, 9]
    assert found["bad_body"].to_pylist() == [None, body, None, body, None]
    (told, _) = (text for text in found["bad_reason"].to_pylist() if text is not None)
    assert re.search(reason, told), told
    assert len(told) <= decoding.REASON_CHARACTERS_MAX


def test_json_types() -> None:
    """All types that a schema may have."""
    kind = pa.schema(
        {
            "at": pa.timestamp("us", tz="UTC"),
            "local": pa.timestamp("ms"),
            "day": pa.date32(),
            "price": pa.decimal128(10, 2),
            "raw": pa.binary(),
            "is_new": pa.bool_(),
            "tags": pa.list_(pa.string()),
            "lines": pa.list_(pa.struct({"sku": pa.string(), "count": pa.uint16()})),
            "extra": pa.map_(pa.string(), pa.int64()),
        }
    )
    body = {
        "at": "2026-01-02T03:04:05.000006Z", "local": "2026-01-02T03:04:05", "day": "2026-01-02", "price": "12.34",
        "raw": "AAE=", "is_new": True, "tags": ["a", None], "lines": [{"sku": "s", "count": 3}, {}], "extra": {"k": 1},
    }  # fmt: skip
    found = decoded(Json(kind), [json.dumps(body).encode(), b'{"lines": [{"count": 70000}]}', b'{"at": "today"}'])
    assert found.slice(0, 1).drop(["offset", "bad_body", "bad_reason"]).to_pylist() == [
        {
            "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "local": datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001
            "day": date(2026, 1, 2), "price": Decimal("12.34"), "raw": b"\x00\x01", "is_new": True, "tags": ["a", None],
            "lines": [{"sku": "s", "count": 3}, {"sku": None, "count": None}], "extra": [("k", 1)],
        }
    ]  # fmt: skip
    reasons = found["bad_reason"].to_pylist()
    assert reasons[0] is None
    assert "70000" in reasons[1]
    assert "at `$.at`" in reasons[2]


def test_decoders_that_make_no_sense() -> None:
    """They are refused when they are made."""
    with pytest.raises(ValueError, match="x is month_day_nano_interval: JSON has no such values"):
        Json({"x": pa.month_day_nano_interval()})
    with pytest.raises(ValueError, match="has no field"):
        Json({})
    with pytest.raises(ValueError, match="two columns have the name 'offset': give the decoder a prefix"):
        Decoding(Json({"offset": pa.int64()}), None)
    with pytest.raises(ValueError, match="'bad_body'"):
        Decoding(Json({"bad_body": pa.int64()}), None)
    chosen = Decoding(Json({"offset": pa.int64()}, prefix="body_"), None)
    assert chosen.needed[-2:] == ("value", "sys_flag")
    assert [name for name in chosen.schema(schema_of(chosen.needed)).names if name.startswith("body")] == [
        "body_offset"
    ]
    for schema, text in (
        ({"type": "record", "name": "R", "fields": []}, "without fields"),
        ("string", "."),
        (record({"type": "array", "items": "null"}), "'null', which can't be a column"),
        (record(["null", "int", "string"]), "union of 2 types"),
        (record(["null", "R"]), "R inside of itself"),
        (record({"type": "fixed", "name": "F", "size": 0}), "type 'fixed'"),
        (record("nothing"), "'nothing'"),
    ):
        with pytest.raises(ValueError, match=text):
            Avro(json.dumps(schema) if isinstance(schema, str) else schema)
    with pytest.raises(ValueError, match="skip_bytes is -1"):
        Avro(record("int"), skip_bytes=-1)
    with pytest.raises(ValueError, match=r"google.protobuf.Struct is inside of itself"):
        Protobuf(Struct)


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "was", "type": ["null", "State"]},
        {"name": "lines", "type": {"type": "array", "items": record("float") | {"name": "Line"}}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "extra", "type": {"type": "map", "values": "int"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
VALUE = {
    "id": 2**40, "note": None, "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "price": Decimal("1.50"),
    "state": "PAID", "was": "NEW", "lines": [{"x": 1.5}], "first": {"x": 0.5}, "extra": {"a": 1}, "hash": b"ab",
    "uid": "6f0c3c1e-0000-4000-8000-000000000000",
}  # fmt: skip


def avro_body(value: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    return out.getvalue()


def test_avro_rows() -> None:
    """With all kinds of types, and with the head of a schema registry."""
    body = avro_body(VALUE)
    found = decoded(Avro(AVRO), [body, body[:-1], body + b"x", b"", body])
    rows = found.drop(["offset", "bad_body", "bad_reason"]).to_pylist()
    assert rows[0] == rows[4] == VALUE | {"extra": [("a", 1)]}
    assert found["bad_body"].to_pylist() == [None, body[:-1], body + b"x", b"", None]
    assert "1 bytes lie behind the record" in found["bad_reason"].to_pylist()[2]
    framed = decoded(Avro(json.dumps(AVRO), skip_bytes=5), [b"\x00\x00\x00\x00\x07" + body, b"\x00"])
    assert framed["id"].to_pylist() == [2**40, None]
    assert "1 bytes, of which 5 are left out" in framed["bad_reason"].to_pylist()[1]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "array", "items": "int"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"),
        ({"type": "map", "values": "boolean"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x01"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc"),
        ("bytes", b"\x01abc"),
        ("string", b"\x02\xff"),
        ("long", b"\xff" * 50),
    ],
)
def test_avro_sizes_that_lie(kind: Any, body: bytes) -> None:
    """Counts and sizes beyond the body, and below 0, are bad rows at once."""
    good = b"\x00"
    found = decoded(Avro(record(kind)), [good, body, good])
    assert found["bad_body"].to_pylist() == [None, body, None]


PROTO = FileDescriptorProto(name="frames_test.proto", package="frames_test", syntax="proto3")
PROTO.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])


def order_type() -> Descriptor:
    """Return the descriptor of a message with all kinds of fields."""
    from google.protobuf import timestamp_pb2, wrappers_pb2

    proto = FileDescriptorProto()
    proto.CopyFrom(PROTO)
    state = proto.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    line = proto.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    order = proto.message_type.add(name="Order")
    order.oneof_decl.add(name="_note")
    order.field.add(name="id", number=1, type=4, label=1)
    order.field.add(name="note", number=2, type=9, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="state", number=3, type=14, type_name=".frames_test.State", label=1)
    order.field.add(name="lines", number=4, type=11, type_name=".frames_test.Line", label=3)
    order.field.add(name="at", number=5, type=11, type_name=".google.protobuf.Timestamp", label=1)
    order.field.add(name="count", number=6, type=11, type_name=".google.protobuf.Int32Value", label=1)
    entry = DescriptorProto(name="ExtraEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, type_name=".frames_test.Line", label=1)
    order.nested_type.append(entry)
    order.field.add(name="extra", number=7, type=11, type_name=".frames_test.Order.ExtraEntry", label=3)
    pool = DescriptorPool()
    for needed in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(needed.DESCRIPTOR.serialized_pb)
    pool.Add(proto)
    found: Descriptor = pool.FindMessageTypeByName("frames_test.Order")
    return found


def test_protobuf_rows() -> None:
    """Presence, enums, maps, times and wrappers; a class and a descriptor."""
    order = GetMessageClass(order_type())(id=2**63, state=1, lines=[{"sku": "a"}], extra={"k": {"sku": "b"}})
    order.at.FromMicroseconds(1_700_000_000_000_006)
    order.count.value = 5
    body = order.SerializeToString()
    found = decoded(Protobuf(order_type()), [body, b"", b"\x18\x07", b"\x08", body])
    rows = found.drop(["offset", "bad_body", "bad_reason"]).to_pylist()
    at = datetime(2023, 11, 14, 22, 13, 20, 6, tzinfo=UTC)
    assert rows[0] == rows[4] == {
        "id": 2**63, "note": None, "state": "PAID", "lines": [{"sku": "a"}], "at": at, "count": 5,
        "extra": [("k", {"sku": "b"})],
    }  # fmt: skip
    empty = {"id": 0, "note": None, "state": "NEW", "lines": [], "at": None, "count": None, "extra": []}
    assert rows[1:3] == [empty, empty | {"state": "7"}]
    assert found["bad_body"].to_pylist() == [None, None, None, b"\x08", None]
    assert "DecodeError" in found["bad_reason"].to_pylist()[3]
    rows = decoded(Protobuf(AppendMessage), [AppendMessage(topic="t", body=b"b").SerializeToString()]).to_pylist()
    assert (rows[0]["topic"], rows[0]["body"], rows[0]["queue_id"]) == ("t", b"b", None)
    Protobuf(StoredMessage)


@pytest.mark.parametrize("name", ["json", "avro", "protobuf"])
def test_damaged_bodies_are_never_the_end(name: str) -> None:
    """Cut and changed bodies: each is a row or a bad row, and good neighbours stay good."""
    proto = GetMessageClass(order_type())(id=7, note="x" * 20, lines=[{"sku": "a"}]).SerializeToString()
    decoder, good = {
        "json": (Json(ORDER), b'{"id": 7, "amount": 1.5, "note": "some words"}'),
        "avro": (Avro(AVRO), avro_body(VALUE | {"id": 7})),
        "protobuf": (Protobuf(order_type()), proto),
    }[name]
    chance = random.Random(7)
    bodies = []
    for _ in range(2_000):
        raw = bytearray(good[: chance.randint(0, len(good))] if chance.random() < 0.3 else good)
        for _ in range(chance.randint(1, 3)):
            if raw:
                raw[chance.randrange(len(raw))] = chance.randrange(256)
        bodies += [bytes(raw), good]
    found = decoded(decoder, bodies)
    assert found["id"].to_pylist()[1::2] == [7] * 2_000
    bad = found["bad_body"].to_pylist()
    assert bad[1::2] == [None] * 2_000
    assert all(kept is None or kept == body for kept, body in zip(bad, bodies, strict=True))
    assert sum(kept is not None for kept in bad) > 100


def test_compressed_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are inflated; what can't be inflated is bad. Batches of large bodies come in pieces."""
    marked = 1 | 3 << 8
    body = b'{"id": 5, "note": "' + b"x" * 10_000 + b'"}'
    found = decoded(Json(ORDER), [zlib.compress(body), b"{}", b"no zlib", b'{"id": 6}'], [marked, 0, marked, 0])
    assert found["id"].to_pylist() == [5, None, None, 6]
    assert found["bad_body"].to_pylist() == [None, None, b"no zlib", None]
    assert "no whole zlib body" in found["bad_reason"].to_pylist()[2]
    monkeypatch.setattr(decoding, "PIECE_SIZE_BYTES", 25_000)
    many = decoded(Json(ORDER), [zlib.compress(body), b"bad"] * 10, [marked, 0] * 10)
    assert many["id"].num_chunks == 4
    assert many["id"].to_pylist() == [5, None] * 10
    assert many["bad_body"].to_pylist() == [None, b"bad"] * 10
    monkeypatch.setattr(decoding, "BODY_SIZE_BYTES_MAX", 5_000)
    assert "more than 5000" in decoded(Json(ORDER), [zlib.compress(body)], [marked])["bad_reason"].to_pylist()[0]
