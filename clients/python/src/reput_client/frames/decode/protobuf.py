# SPDX-License-Identifier: Apache-2.0
"""Protobuf: bodies that are messages of a type of Protocol Buffers."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from reput_client.frames.decode.decoder import Decoder

Convert: TypeAlias = Callable[[Any], Any]
"""Makes Python's form of an Arrow value of a value of protobuf."""

SCALARS: Mapping[int, pa.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}
TIMES: Mapping[str, pa.DataType] = {
    "google.protobuf.Timestamp": pa.timestamp("us", tz="UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)


class Protobuf(Decoder):
    """Decodes bodies that are messages of a type: its generated class, or its descriptor.

    A field with presence that is not set is null; other fields that are not set have their default. Enums are the names
    of their values, Timestamp and Duration have microseconds, and wrappers are their values. Unknown fields are left
    out, as protobuf does. Raises ValueError for a recursive type, which has no columns.
    """

    def __init__(self, message_type: type[Message] | Descriptor, *, prefix: str = "") -> None:
        descriptor: Any = message_type if isinstance(message_type, Descriptor) else message_type.DESCRIPTOR
        row_type, self._convert = _message(descriptor, ())
        super().__init__(row_type, prefix)
        self._parse = GetMessageClass(descriptor).FromString

    def row(self, body: bytes) -> dict[str, Any]:
        """See Decoder.row."""
        found: dict[str, Any] = self._convert(self._parse(body))
        return found


def _message(descriptor: Descriptor, inside: tuple[str, ...]) -> tuple[pa.StructType, Convert]:
    """Return the type of a message. `inside` are the messages around it. Raises ValueError."""
    if descriptor.full_name in inside:
        raise ValueError(f"{descriptor.full_name} is inside of itself: a column has a fixed depth")
    names = (*inside, descriptor.full_name)
    parts = [(field.name, field.has_presence, *_field(field, names)) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else converted(getattr(message, name))
            for name, has_presence, _, converted in parts
        }

    return pa.struct([(name, kind) for name, _, kind, _ in parts]), convert


def _field(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    """Return the type of a field."""
    if not field.is_repeated:
        return _single(field, inside)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key_type, _ = _single(entry.fields_by_name["key"], inside)
        value_type, convert = _single(entry.fields_by_name["value"], inside)
        return pa.map_(key_type, value_type), lambda found: [(key, convert(one)) for key, one in found.items()]
    kind, convert_one = _single(field, inside)
    return pa.list_(kind), lambda found: [convert_one(one) for one in found]


def _single(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    """Return the type of a value of a field."""
    if field.cpp_type in SCALARS:
        return SCALARS[field.cpp_type], _same
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string(), _same
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return pa.string(), lambda number: names.get(number, str(number))
    kind = field.message_type.full_name
    if kind in TIMES:
        return TIMES[kind], lambda time: time.ToMicroseconds()
    if kind in WRAPPERS:
        return _single(field.message_type.fields_by_name["value"], inside)[0], lambda wrapper: wrapper.value
    return _message(field.message_type, inside)


def _same(value: Any) -> Any:
    return value
